// A table, formula or block of code that is wider than the screen scrolls. With this it does so from the keyboard, too.
const BOXES = ".md-typeset__scrollwrap, .md-typeset pre > code, .math";
function reach() {
  for (const box of document.querySelectorAll(BOXES))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
}
addEventListener("load", reach);
addEventListener("resize", reach);
