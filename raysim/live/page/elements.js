"use strict";
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// elements: text is set as text, and never parsed
function make(tag, attributes = {}, text = null, inside = []) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  element.append(...inside);
  return element;
}
function shape(tag, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
}
function canvas(width, height, label) {
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  const add = (tag, attributes, text) => svg.appendChild(shape(tag, attributes, text));
  return [svg, add];
}
const say = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text; };
const show = (id, shown) => { $(id).hidden = !shown; };
const widthOf = (id) => Math.max(220, $(id).clientWidth);
