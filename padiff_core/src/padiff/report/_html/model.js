// The two trees as columns of plain arrays, and what is matched with what.
const DATA = JSON.parse(document.getElementById("graph").textContent);
const GREY = "unmatched", MATCHED = "matched", JOINED = "joined", BACKWARD = "backward";
const SERIOUS = { source: 5, differs: 4, unmatched: 3, backward: 2, precision: 1, stochastic: 1 };

function makeSide(raw, index) {
  const count = raw.nodes.length;
  const side = { index, raw, count, title: raw.title, label: raw.label,
    parent: raw.nodes.map((node) => node.parent ?? -1),
    children: raw.nodes.map(() => []),
    depth: new Int32Array(count),
    mate: new Int32Array(count).fill(-1),
    state: new Array(count).fill(GREY),
    link: new Array(count).fill(null),
    findings: raw.nodes.map(() => []),
    open: new Uint8Array(count),
    worst: new Array(count).fill(""),
    tops: [], rows: [], rowOf: new Int32Array(count).fill(-1) };
  for (let i = 0; i < count; i++) {
    const above = side.parent[i];
    (above < 0 ? side.tops : side.children[above]).push(i);
  }
  const queue = [...side.tops];
  while (queue.length) {
    const i = queue.pop();
    side.depth[i] = side.parent[i] < 0 ? 0 : side.depth[side.parent[i]] + 1;
    queue.push(...side.children[i]);
  }
  return side;
}

const SIDES = DATA.sides.map(makeSide);

function connect(link) {
  const [a, b] = link.nodes;
  SIDES[0].mate[a] = b;
  SIDES[1].mate[b] = a;
  for (const [side, i] of [[SIDES[0], a], [SIDES[1], b]]) {
    side.state[i] = link.verdict || MATCHED;
    side.link[i] = link;
  }
}

function disconnect(link) {
  for (const [k, i] of link.nodes.entries()) {
    SIDES[k].mate[i] = -1;
    SIDES[k].state[i] = GREY;
    SIDES[k].link[i] = null;
  }
}

DATA.links.forEach(connect);
for (const finding of DATA.findings) {
  for (const [k, i] of finding.nodes.entries()) {
    if (i === null) continue;
    SIDES[k].findings[i].push(finding);
    const side = SIDES[k];
    if (side.state[i] === "ignored" || finding.verdict === GREY) continue;
    if (finding.source) side.state[i] = "source";
    else if ((SERIOUS[finding.verdict] || 0) > (SERIOUS[side.state[i]] || 0)) side.state[i] = finding.verdict;
  }
}

// Where gradients alone differ the forward pass does not begin to: that is another sort of difference.
for (const side of SIDES) {
  side.findings.forEach((found, i) => {
    const differing = found.filter((one) => one.verdict === "differs");
    if (side.state[i] === "differs" && differing.length && differing.every((one) => one.phase === "backward")) side.state[i] = BACKWARD;
  });
}

/** Say for every node the worst of what lies below it, for a folded row to show. */
function weigh(side) {
  side.worst.fill("");
  const order = [...side.tops];
  for (let at = 0; at < order.length; at++) order.push(...side.children[order[at]]);
  for (const i of order.reverse()) {
    const above = side.parent[i];
    if (above < 0) continue;
    for (const state of [side.state[i], side.worst[i]]) {
      if ((SERIOUS[state] || 0) > (SERIOUS[side.worst[above]] || 0)) side.worst[above] = state;
    }
  }
}

const path = (side, i) => side.raw.nodes[i].path;
const bareClass = (side, i) => (side.raw.classes[side.raw.nodes[i].class] || "").replace(/^.*\./, "");
const isStep = (side, i) => side.raw.nodes[i].path === null;

/** A name as document 004 shows it: {module_name}.{class}.{forward|backward}.{n}. */
function nameOf(side, i, pass) {
  const node = side.raw.nodes[i];
  if (node.path === null) return node.label;
  return [node.path, bareClass(side, i), pass, node.call].filter((part) => part !== "").join(".");
}

/** The name in three parts: what its parent's says too, its own, and what follows it. */
function nameParts(side, i, pass) {
  const node = side.raw.nodes[i], above = side.parent[i];
  if (node.path === null) return ["", node.label, ""];
  const around = above < 0 ? "" : path(side, above) || "";
  const shared = around && node.path.startsWith(around + ".") ? around.length + 1 : 0;
  const tail = [bareClass(side, i), pass, node.call].join(".");
  return [node.path.slice(0, shared), node.path.slice(shared), (node.path ? "." : "") + tail];
}

// What would reorder or hide the text around it is shown as its code instead.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202f\u2066-\u2069\ufeff]/g;
const shown = (text) => String(text).replace(HIDDEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

function visit(side, order, each) {
  const walk = (list) => { for (const i of order(list)) if (each(i)) walk(side.children[i]); };
  walk(side.tops);
}

/** The rows that the folds leave, in the order of the pass that is shown. */
function flatten(side, view) {
  side.rows = [];
  side.rowOf.fill(-1);
  const order = view.pass === "backward" ? (list) => [...list].reverse() : (list) => list;
  visit(side, order, (i) => {
    if (view.only && !SERIOUS[side.state[i]] && !side.worst[i]) return false;
    side.rowOf[i] = side.rows.length;
    side.rows.push(i);
    return side.open[i];
  });
}

function reveal(side, i) {
  for (let above = side.parent[i]; above >= 0; above = side.parent[above]) side.open[above] = 1;
}

/** Fold to what matters: open the way to what differs, then to what is unmatched, up to a budget of rows. */
function foldToWhatMatters() {
  const budget = 120;
  for (const side of SIDES) {
    side.open.fill(0);
    let rows = side.tops.length;
    const unfold = (i) => { if (!side.open[i]) { side.open[i] = 1; rows += side.children[i].length; } };
    const all = [...side.state.keys()];
    const wanted = ["source", "differs", GREY, BACKWARD, "precision"].flatMap((state) => all.filter((i) => side.state[i] === state));
    const opened = wanted.slice(0, 2000).filter((i) => {
      if (rows > budget) return false;
      for (let above = side.parent[i]; above >= 0; above = side.parent[above]) unfold(above);
      return true;
    });
    if (opened.length) continue;
    let level = side.tops;
    for (let deep = 0; deep < 3 && rows + level.length < budget; deep++) {
      level.forEach(unfold);
      level = level.flatMap((i) => side.children[i]);
    }
  }
  // What is unfolded on one side is unfolded on the other.
  for (const side of SIDES) {
    const other = SIDES[1 - side.index];
    side.mate.forEach((j, i) => { if (j >= 0 && side.open[i]) { other.open[j] = 1; reveal(other, j); } });
  }
}
