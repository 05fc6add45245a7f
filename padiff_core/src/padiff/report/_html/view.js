// Both trees as virtual lists (only the rows in sight are elements), and the lines between them.
const ROW = 26;
const view = { pass: "forward", only: false, selected: [-1, -1], active: 0, linked: true };
const byId = (id) => document.getElementById(id);

function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

const COLUMNS = SIDES.map((side) => {
  const box = byId(`tree${side.index}`), space = make("div", "space");
  space.setAttribute("role", "presentation");
  box.append(space);
  return { side, box, space, pool: [] };
});

function rowElement(column) {
  const row = make("div", "row");
  row.setAttribute("role", "treeitem");
  row.parts = { twist: make("span", "twist"), mark: make("span", "mark"), name: make("span", "name"),
    shared: make("bdi", "shared"), own: make("bdi", "own"), tail: make("bdi", "tail"), wrong: make("span", "wrong"), more: make("span", "more") };
  const { twist, mark, name, shared, own, tail, wrong, more } = row.parts;
  name.append(shared, own, tail);
  row.append(twist, mark, name, wrong, more);
  row.addEventListener("click", (event) => {
    if (event.target === twist) toggle(column.side, row.node);
    else select(column.side, row.node);
  });
  row.addEventListener("dblclick", () => toggle(column.side, row.node));
  column.space.append(row);
  return row;
}

function fill(row, column, i) {
  const { side } = column, { twist, mark, shared, own, tail, wrong, more } = row.parts;
  const node = side.raw.nodes[i], folded = side.children[i].length && !side.open[i];
  row.node = i;
  row.id = `row${side.index}-${i}`;
  row.hidden = false;
  row.style.transform = `translateY(${side.rowOf[i] * ROW}px)`;
  row.style.setProperty("--depth", Math.min(side.depth[i], 40));
  const selected = view.selected[side.index] === i;
  row.className = `row is-${side.state[i].replace(" ", "-")}${selected ? " selected" : ""}`;
  row.setAttribute("aria-level", side.depth[i] + 1);
  row.setAttribute("aria-selected", selected);
  if (side.children[i].length) row.setAttribute("aria-expanded", !folded);
  else row.removeAttribute("aria-expanded");
  twist.textContent = side.children[i].length ? (folded ? "▸" : "▾") : "";
  mark.textContent = MARKS[side.state[i]] || "";
  const parts = nameParts(side, i, view.pass);
  shared.textContent = shown(parts[0]);
  own.textContent = shown(parts[1]);
  tail.textContent = shown(parts[2]);
  row.title = `${shown(nameOf(side, i, view.pass))}\n${WORDS[side.state[i]] || side.state[i]}`;
  wrong.textContent = node.wrong ? `⚠ ${node.wrong}` : "";
  const hidden = folded ? side.worst[i] : "";
  more.className = hidden ? `more is-${hidden}` : "more";
  more.textContent = hidden ? `${MARKS[hidden]} inside` : (folded ? String(side.children[i].length) : "");
  row.classList.toggle("step", node.path === null);
}

function drawColumn(column) {
  const { side, box, pool } = column;
  column.space.style.height = `${side.rows.length * ROW}px`;
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4);
  const last = Math.min(side.rows.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 4);
  while (pool.length < last - first) pool.push(rowElement(column));
  pool.forEach((row, k) => {
    if (first + k < last) fill(row, column, side.rows[first + k]);
    else { row.hidden = true; row.removeAttribute("id"); }
  });
  const focus = view.selected[side.index];
  if (focus >= 0 && side.rowOf[focus] >= first && side.rowOf[focus] < last) box.setAttribute("aria-activedescendant", `row${side.index}-${focus}`);
  else box.removeAttribute("aria-activedescendant");
}

/** Join what is in sight: a curve from each matched row to its counterpart. */
function drawLines() {
  const svg = byId("lines"), width = svg.clientWidth, [left, right] = COLUMNS;
  const height = svg.clientHeight, lines = [];
  const y = (column, i) => column.side.rowOf[i] * ROW + ROW / 2 - column.box.scrollTop;
  const first = Math.max(0, Math.floor(left.box.scrollTop / ROW) - 30), most = Math.ceil(height / ROW) + 60;
  for (const a of left.side.rows.slice(first, first + most)) {
    const b = left.side.mate[a];
    if (b < 0 || right.side.rowOf[b] < 0) continue;
    const from = y(left, a), to = y(right, b);
    if ((from < 0 || from > height) && (to < 0 || to > height)) continue;
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", `M0 ${from}C${width / 2} ${from} ${width / 2} ${to} ${width} ${to}`);
    line.setAttribute("class", `line is-${left.side.state[a].replace(" ", "-")}${view.selected[0] === a ? " selected" : ""}`);
    lines.push(line);
  }
  svg.replaceChildren(...lines);
}

let asked = false;
function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; COLUMNS.forEach(drawColumn); drawLines(); });
}

function refresh() {
  SIDES.forEach((side) => flatten(side, view));
  draw();
}

function toggle(side, i, open = !side.open[i]) {
  side.open[i] = open ? 1 : 0;
  const j = side.mate[i], other = SIDES[1 - side.index];
  if (j >= 0) other.open[j] = side.open[i];
  refresh();
}

function scrollTo(column, i, wanted) {
  const top = column.side.rowOf[i] * ROW, { box } = column;
  column.space.style.height = `${column.side.rows.length * ROW}px`;
  if (wanted !== undefined) box.scrollTop = top - wanted;
  else if (top < box.scrollTop) box.scrollTop = top - ROW;
  else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * ROW - box.clientHeight;
  return top - box.scrollTop;
}

/** Select a node, and its counterpart with it; beside a grey node the other side's grey one stays selected. */
function select(side, i) {
  const k = side.index, j = side.mate[i], other = SIDES[1 - k];
  view.active = k;
  view.selected[k] = i;
  if (j >= 0) view.selected[1 - k] = j;
  else if (view.selected[1 - k] >= 0 && other.mate[view.selected[1 - k]] >= 0) view.selected[1 - k] = -1;
  reveal(side, i);
  if (j >= 0) reveal(other, j);
  if (view.only && !SERIOUS[side.state[i]] && !side.worst[i]) setOnly(false);
  SIDES.forEach((one) => flatten(one, view));
  const height = scrollTo(COLUMNS[k], i);
  if (j >= 0) scrollTo(COLUMNS[1 - k], j, height);
  showDetails();
  draw();
}

/** Keep the other side where its counterparts are, while one side is scrolled. */
function follow(column) {
  const other = COLUMNS[1 - column.side.index], { side, box } = column;
  const middle = Math.floor((box.scrollTop + box.clientHeight / 3) / ROW);
  for (let off = 0; off < 60; off++) {
    for (const at of [middle + off, middle - off]) {
      const i = side.rows[at], j = i === undefined ? -1 : side.mate[i];
      if (j < 0 || other.side.rowOf[j] < 0) continue;
      other.box.scrollTop = other.side.rowOf[j] * ROW - (at * ROW - box.scrollTop);
      return;
    }
  }
}

let driver = null;
for (const column of COLUMNS) {
  for (const what of ["wheel", "pointerdown", "touchstart", "keydown"]) {
    column.box.addEventListener(what, () => { driver = column; }, { passive: true });
  }
  column.box.addEventListener("scroll", () => {
    if (view.linked && driver === column) follow(column);
    draw();
  }, { passive: true });
  column.box.addEventListener("focus", () => { view.active = column.side.index; });
}
new ResizeObserver(draw).observe(byId("lines"));
