// A page as a function of its state: h() describes elements, patch() changes the document to what is described and touches nothing else.
//
// Elements that stay keep their focus, selection and scroll position. A list's items have keys. All text is text: nothing here parses
// markup, so a topic named <script> is shown as that.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "open", "selected", "indeterminate"]);
const OWN = new Set(["series", "whole", "key", "mount", "update", "unmount", "style"]);

function flat(list, into = []) {
  for (const each of list) {
    if (each === null || each === undefined || each === false || each === true || each === "") continue;
    if (Array.isArray(each)) flat(each, into);
    else into.push(typeof each === "object" ? each : { text: String(each) });
  }
  return into;
}

/** An element as it should be. Props: attributes, `onclick` …, `key`, `style` (an object), and mount/update/unmount(element, props). */
export function h(tag, props, ...children) {
  return { tag, props: props || {}, children: flat(children), element: null };
}

function listen(element, name, handler) {
  const handlers = (element.handlers ||= {});
  if (!(name in handlers)) element.addEventListener(name, (event) => handlers[name] && handlers[name](event));
  handlers[name] = handler;
}

function setProp(element, name, value) {
  if (name.startsWith("on")) listen(element, name.slice(2), value || null);
  else if (PROPERTIES.has(name)) {
    const wanted = value ?? (name === "value" ? "" : false);
    if (element[name] !== wanted) element[name] = wanted;
  } else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

function setStyle(element, style, before) {
  for (const name in before) if (!(name in style)) element.style.removeProperty(name);
  for (const name in style) if (before[name] !== style[name]) element.style.setProperty(name, style[name]);
}

function create(node, svg) {
  if (node.text !== undefined) return (node.element = document.createTextNode(node.text));
  const inside = svg || node.tag === "svg";
  const element = inside ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  node.element = element;
  for (const child of node.children) element.append(create(child, inside));
  for (const name in node.props) if (!OWN.has(name)) setProp(element, name, node.props[name]);
  if (node.props.style) setStyle(element, node.props.style, {});
  if (node.props.mount) node.props.mount(element, node.props);
  return element;
}

function forget(node) {
  if (node.text !== undefined) return;
  for (const child of node.children) forget(child);
  if (node.props.unmount) node.props.unmount(node.element);
}

function change(before, now, svg) {
  const element = (now.element = before.element);
  if (now.text !== undefined) {
    if (before.text !== now.text) element.data = now.text;
    return;
  }
  if (now.props.mount && !now.children.length) ; // its content is its own, such as a chart
  else children(element, before.children, now.children, svg || now.tag === "svg");
  for (const name in before.props) if (!OWN.has(name) && !(name in now.props)) setProp(element, name, null);
  for (const name in now.props) {
    if (OWN.has(name)) continue;
    if (before.props[name] !== now.props[name] || PROPERTIES.has(name)) setProp(element, name, now.props[name]);
  }
  if (before.props.style || now.props.style) setStyle(element, now.props.style || {}, before.props.style || {});
  if (now.props.update) now.props.update(element, now.props);
}

const same = (one, other) => one.tag === other.tag && (one.text === undefined) === (other.text === undefined) && one.props?.key === other.props?.key;

function children(parent, before, now, svg) {
  const keyed = new Map();
  for (const node of before) if (node.props?.key !== undefined) keyed.set(node.props.key, node);
  const left = before.filter((node) => node.props?.key === undefined);
  const kept = new Set();
  let next = 0;
  for (const node of now) {
    let old;
    if (node.props?.key !== undefined) old = keyed.get(node.props.key);
    else {
      const from = next;
      while (next < left.length && !same(left[next], node)) next += 1;
      if (next < left.length) old = left[next++];
      else next = from; // none left that fits: those passed by may still fit the next
    }
    if (old && same(old, node) && !kept.has(old)) {
      kept.add(old);
      change(old, node, svg);
    } else create(node, svg);
  }
  for (const node of before) {
    if (!kept.has(node)) {
      forget(node);
      node.element.remove();
    }
  }
  let at = parent.firstChild;
  for (const node of now) {
    if (node.element === at) at = at.nextSibling;
    else parent.insertBefore(node.element, at);
  }
}

const shown = new WeakMap();

/** Let `root` contain what `nodes` describe. */
export function patch(root, nodes) {
  const now = flat([nodes]);
  const before = shown.get(root);
  const focus = document.activeElement;
  if (!before) root.replaceChildren();
  children(root, before || [], now, false);
  shown.set(root, now);
  if (focus && focus !== document.activeElement && focus !== document.body && focus.isConnected) focus.focus({ preventScroll: true });
}
