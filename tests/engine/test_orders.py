"""Orders: what each operation does with its message, how errors name it, and that it is a key."""

import pytest

from raysim.engine.orders import Call, Order, RoundInfo, Train


def test_the_message_of_a_phase_has_a_part_for_each_method_and_that_of_a_call_is_one_methods():
    assert Train().messages({"er": 1, "ewc": None}) == {"er": 1, "ewc": None}
    assert Call("er", "count").messages([2]) == {"er": [2]}


@pytest.mark.parametrize(
    ("operation", "methods", "wanted"),
    [(Train(), ["er", "ewc"], "er, ewc"), (Train(), [], "FedAvg"), (Call("er", "count"), ["er", "ewc"], "er.count")],
)
def test_an_error_names_the_methods_of_a_phase_and_the_op_of_a_call(operation, methods, wanted):
    assert operation.describe(methods) == wanted


def test_terms_come_from_finish_or_from_the_op():
    assert (Train().returns_in, Call("er", "count").returns_in) == ("finish", "count")


def test_equal_operations_are_one_key():
    assert len({Train(), Train(), Call("er", "count"), Call("er", "count"), Call("er", "ask"), Call("ewc", "ask")}) == 4


def test_a_client_of_an_order_may_have_another_window():
    order = Order(Train(), (0, 1), {0: 0.5, 1: 0.5}, 2, RoundInfo(3, 1, 0.1), {1: 2})
    assert order.round_info_of(0) == RoundInfo(3, 1, 0.1)
    assert order.round_info_of(1) == RoundInfo(3, 2, 0.1)
