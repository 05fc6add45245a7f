// Search, keys and buttons; then the first drawing.
const SIDE_NAMES = ["left", "right"];
const found = { hits: [], at: -1, text: "" };

function search(text) {
  found.text = text;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  found.hits = !words.length ? [] : SIDES.flatMap((side) => [...side.state.keys()].filter((i) => {
    const name = `${nameOf(side, i, view.pass)} ${side.state[i]} ${side.raw.classes[side.raw.nodes[i].class] || ""}`.toLowerCase();
    return words.every((word) => name.includes(word));
  }).map((i) => [side, i]));
  // A matched pair is one hit.
  found.hits = found.hits.filter(([side, i]) => side.index === 0 || side.mate[i] < 0 || !found.hits.some(([s, a]) => s.index === 0 && a === side.mate[i]));
  found.at = -1;
  byId("hits").textContent = words.length ? `${found.hits.length} found` : "";
}

function nextHit(step) {
  if (!found.hits.length) return;
  found.at = (found.at + step + found.hits.length) % found.hits.length;
  byId("hits").textContent = `${found.at + 1} of ${found.hits.length}`;
  select(...found.hits[found.at]);
}

function setOnly(only) {
  view.only = only;
  byId("only").setAttribute("aria-pressed", only);
}

function setPass(pass) {
  view.pass = pass;
  for (const one of ["forward", "backward"]) byId(one).setAttribute("aria-pressed", one === pass);
  refresh();
  COLUMNS.forEach((column) => { if (view.selected[column.side.index] >= 0) scrollTo(column, view.selected[column.side.index]); });
  showDetails();
}

function showCounts() {
  const counts = new Map(), [left, right] = SIDES;
  const count = (side, i) => { if (!isStep(side, i)) counts.set(side.state[i], (counts.get(side.state[i]) || 0) + 1); };
  left.state.forEach((_, i) => count(left, i));
  right.state.forEach((_, i) => { if (right.mate[i] < 0) count(right, i); });
  const order = Object.keys(MARKS).filter((state) => counts.has(state));
  byId("legend").replaceChildren(...order.map((state) => {
    const said = state === "source" && DATA.sources ? DATA.sources : `${counts.get(state)} ${NOUNS[state] || state}`;
    const button = make("button", `key is-${state.replace(" ", "-")}`, `${MARKS[state]} ${said}`);
    button.title = `${WORDS[state]}: step through the calls`;
    button.addEventListener("click", () => step(state));
    return button;
  }), ...SIDES.flatMap(firstWrong));
}

/** Buttons that go to where the first NaN of a side came up, and the first Inf, which a mask may hold rightly. */
function firstWrong(side) {
  return Object.entries(side.raw.wrong).map(([what, i]) => {
    const button = make("button", "key is-wrong", `⚠ first ${what}, ${shown(side.label || SIDE_NAMES[side.index])}`);
    button.title = `${shown(nameOf(side, i, view.pass))}: go there`;
    button.addEventListener("click", () => select(side, i));
    return button;
  });
}

/** Go to the next node in a state, from the selected one on. */
function step(...states) {
  const side = SIDES[view.active], from = view.selected[view.active];
  const all = [side, SIDES[1 - side.index]].flatMap((one) => {
    const hits = [];
    visit(one, (list) => list, (i) => { if (states.includes(one.state[i]) && !isStep(one, i)) hits.push([one, i]); return true; });
    return one === side ? hits : hits.filter(([, i]) => one.mate[i] < 0);
  });
  const here = all.findIndex(([one, i]) => one === side && i === from);
  if (all.length) select(...all[(here + 1) % all.length]);
}

function move(column, by) {
  const { side } = column, known = side.rowOf[view.selected[side.index]] ?? -1;
  const at = known < 0 && by < 0 ? side.rows.length : known;
  const to = Math.max(0, Math.min(side.rows.length - 1, at + by));
  if (side.rows.length) select(side, side.rows[to]);
}

function treeKey(event, column) {
  const { side } = column, i = view.selected[side.index], page = Math.floor(column.box.clientHeight / ROW) - 1;
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -side.rows.length, End: side.rows.length };
  if (event.key in moves) move(column, moves[event.key]);
  else if (i < 0) return;
  else if (event.key === "Enter" || event.key === " ") { if (side.children[i].length) toggle(side, i); }
  else if (event.key === "ArrowRight") { if (side.children[i].length && !side.open[i]) toggle(side, i, true); else if (side.children[i].length) move(column, 1); }
  else if (event.key === "ArrowLeft") { if (side.open[i] && side.children[i].length) toggle(side, i, false); else if (side.parent[i] >= 0) select(side, side.parent[i]); }
  else return;
  event.preventDefault();
}

COLUMNS.forEach((column) => column.box.addEventListener("keydown", (event) => {
  if (!event.ctrlKey && !event.metaKey && !event.altKey) treeKey(event, column);
}));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea")) return;
  const keys = { "/": () => byId("search").focus(), d: () => step("source", "differs", BACKWARD), u: () => step(GREY), o: () => byId("only").click(),
    n: () => nextHit(1), N: () => nextHit(-1), j: () => byId("joining")?.click() };
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});

byId("search").addEventListener("input", (event) => search(event.target.value));
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") nextHit(event.shiftKey ? -1 : 1);
  else if (event.key === "Escape") COLUMNS[view.active].box.focus();
  else return;
  event.preventDefault();
});
byId("forward").addEventListener("click", () => setPass("forward"));
byId("backward").addEventListener("click", () => setPass("backward"));
byId("only").addEventListener("click", () => { setOnly(!view.only); refresh(); });
byId("fold").addEventListener("click", () => { SIDES.forEach((side) => side.open.fill(0)); refresh(); });
byId("unfold").addEventListener("click", () => { SIDES.forEach((side) => side.open.fill(1)); refresh(); });
byId("linked").addEventListener("click", (event) => {
  view.linked = !view.linked;
  event.target.setAttribute("aria-pressed", view.linked);
});
byId("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});

document.title = shown(DATA.title);
byId("headline").replaceChildren(...DATA.headline.split("\n").filter(Boolean).map((line, k) => make("div", k ? "dim" : "verdict-line", shown(line))));
SIDES.forEach((side, k) => { byId(`title${k}`).textContent = shown(side.title);
  byId(`label${k}`).textContent = shown(side.label); });
byId("passes").hidden = !DATA.backward;
SIDES.forEach(weigh);
foldToWhatMatters();
SIDES.forEach((side) => flatten(side, view));
showCounts();
showDetails();
const first = DATA.findings.find((one) => one.source && one.nodes.some((i) => i !== null));
if (first) select(SIDES[first.nodes[1] === null ? 0 : 1], first.nodes[1] ?? first.nodes[0]);
draw();
document.body.dataset.ready = "yes";
