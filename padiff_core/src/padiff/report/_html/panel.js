// What is known of the selected nodes, and the rules that were made by hand.
const MARKS = { source: "✖", differs: "≠", backward: "≠", unmatched: "○", precision: "≈", stochastic: "⚄", ignored: "–",
  equal: "=", rounding: "≈", "within tolerance": "≈", matched: "·", joined: "⇄" };
const WORDS = { source: "differs: a difference arises here", differs: "differs", backward: "differs in the backward pass alone", unmatched: "has no counterpart",
  precision: "differs by a dtype policy alone", stochastic: "random", ignored: "ignored", equal: "equal",
  rounding: "rounding", "within tolerance": "within tolerance", matched: "matched; no values compared",
  joined: "joined by hand" };

const NOUNS = { differs: "more that differ", backward: "in backward alone" };

const figure = (x) => (typeof x === "number" ? (x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e5)
  ? x.toExponential(2) : String(+x.toPrecision(5))) : String(x));

function section(panel, title, ...content) {
  const found = content.filter(Boolean);
  if (!found.length) return;
  panel.append(make("h3", "", title), ...found);
}

/** Rows of a table, the reference's cell beside the candidate's; cells that differ are marked. */
function table(rows) {
  if (!rows.length) return null;
  const element = make("table");
  for (const [name, ...cells] of rows) {
    const row = make("tr", cells.length > 1 && cells[0] !== cells[1] && cells.every((cell) => cell) ? "unlike" : "");
    row.append(make("th", "", shown(name)));
    cells.forEach((cell) => row.append(make("td", "", cell === undefined ? "" : shown(cell))));
    element.append(row);
  }
  return element;
}

const typeOf = (value) => [value.shape ? `${value.dtype}[${value.shape.join(", ")}]` : "", value.about || ""].filter(Boolean).join(", ");

function valueRows(nodes, field) {
  const lists = nodes.map((node) => (node && node[field]) || []), rows = [];
  for (let k = 0; k < Math.max(...lists.map((list) => list.length)); k++) {
    const pair = lists.map((list) => list[k]);
    rows.push([pair.find(Boolean).name || String(k), ...pair.map((value) => value && typeOf(value))]);
    const names = new Set(pair.flatMap((value) => Object.keys((value && value.statistics) || {})));
    for (const name of names) {
      rows.push([`\u00a0\u00a0${name}`, ...pair.map((value) => value && value.statistics && figure(value.statistics[name] ?? ""))]);
    }
  }
  return rows;
}

function settingRows(nodes) {
  const names = new Set(nodes.flatMap((node) => Object.keys((node && node.settings) || {})));
  return [...names].map((name) => [name, ...nodes.map((node) => node && node.settings && node.settings[name])]);
}

function findingElement(finding) {
  const box = make("div", `finding is-${finding.source ? "source" : finding.verdict.replace(" ", "-")}`);
  box.append(make("b", "", `${finding.source ? "source: " : ""}${finding.verdict}, ${finding.phase}: ${shown(finding.what)}`));
  for (const line of finding.lines) box.append(make("div", "", shown(line)));
  return box;
}

function sideHead(side, i) {
  const box = make("div", "head"), node = side.raw.nodes[i];
  box.append(make("div", "label", shown(side.label)), make("bdi", "fullname", shown(nameOf(side, i, view.pass))));
  const full = side.raw.classes[node.class];
  if (full) box.append(make("div", "dim", shown(full)));
  if (node.location) box.append(make("div", "dim", shown(node.location)));
  return box;
}

function stackList(side, node) {
  if (!node || !node.stack || !node.stack.length) return null;
  const list = make("ol", "stack");
  node.stack.forEach((frame) => list.append(make("li", "", shown(side.raw.frames[frame]))));
  return list;
}

function showDetails() {
  const panel = byId("details"), [a, b] = view.selected;
  panel.replaceChildren();
  if (a < 0 && b < 0) {
    panel.append(make("p", "dim", "Select a node to see what is known of it."));
    return showJoin();
  }
  const nodes = SIDES.map((side, k) => (view.selected[k] < 0 ? null : side.raw.nodes[view.selected[k]]));
  const shownSide = SIDES[a < 0 ? 1 : view.active], i = view.selected[shownSide.index];
  const at = i >= 0 ? shownSide : SIDES[1 - shownSide.index], node = view.selected[at.index];
  const together = a >= 0 && SIDES[0].mate[a] === b;
  if (together || a < 0 || b < 0) {
    panel.append(make("p", `verdict is-${at.state[node].replace(" ", "-")}`, `${MARKS[at.state[node]] || ""} ${WORDS[at.state[node]] || at.state[node]}`));
  }
  SIDES.forEach((side, k) => { if (view.selected[k] >= 0) panel.append(sideHead(side, view.selected[k])); });
  showJoin();
  const link = together ? at.link[node] : null;
  if (link) section(panel, "Compared", table(link.figures || []), link.why && make("p", "dim", `matched: ${shown(link.why)}`));
  section(panel, "Findings", ...at.findings[node].map(findingElement));
  for (const [title, field] of [["Inputs", "inputs"], ["Outputs", "outputs"], ["Gradients of inputs", "input_gradients"],
    ["Gradients of outputs", "output_gradients"], ["Parameters", "parameters"]]) {
    section(panel, title, table(valueRows(nodes, field)));
  }
  section(panel, "Hyper-parameters", table(settingRows(nodes)));
  SIDES.forEach((side, k) => section(panel, `Stack: ${shown(side.label)}`, stackList(side, nodes[k])));
}

/** Offer to join two grey nodes, and show the rules made so far. */
function showJoin() {
  const box = byId("join"), [a, b] = view.selected;
  box.replaceChildren();
  const grey = a >= 0 && b >= 0 && SIDES[0].mate[a] < 0 && SIDES[1].mate[b] < 0;
  const one = [a, b].findIndex((i, k) => i >= 0 && SIDES[k].mate[i] < 0);
  if (grey) {
    const rule = ruleFor(a, b);
    if (typeof rule === "string") box.append(make("p", "dim", rule));
    else {
      const button = make("button", "primary", `⇄ Join (j): ${shown(rule.scope)}: ${shown(rule.key)} → ${shown(rule.value)}`);
      button.id = "joining";
      button.addEventListener("click", () => join(rule, a, b));
      box.append(button);
    }
  } else if (one >= 0) {
    box.append(make("p", "dim", "Select a grey node on the other side too, to join the two by a rule of mapping.yaml."));
  }
  if (made.length) {
    const list = make("ul", "rules");
    made.forEach((rule, k) => {
      const item = make("li"), drop = make("button", "drop", "✕");
      drop.title = "take this rule back";
      drop.addEventListener("click", () => { made.splice(k, 1); rejoin(); });
      item.append(drop, make("bdi", "", `${shown(rule.scope)}: ${shown(rule.key)} → ${shown(rule.value)}`), make("span", "dim", ` joins ${rule.count}`));
      list.append(item);
    });
    const text = make("textarea"), copy = make("button", "", "Copy mapping.yaml");
    text.readOnly = true;
    text.id = "yaml";
    text.value = asYaml();
    text.rows = Math.min(12, text.value.split("\n").length);
    copy.id = "copy";
    copy.addEventListener("click", () => copyText(text, copy));
    box.append(make("h3", "", "mapping.yaml"), list, text, copy);
  }
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text.value);
  } catch {
    text.select();
    document.execCommand("copy");
  }
  button.textContent = "Copied";
}

function rejoin() {
  for (const rule of made) rule.count = 0;
  const before = made.splice(0);
  for (const rule of before) {
    made.push(rule);
    const had = handMade.length;
    applyRules();
    rule.count = handMade.length - had;
  }
  if (!before.length) applyRules();
  SIDES.forEach(weigh);
  refresh();
  showDetails();
  showCounts();
}

function join(rule, a, b) {
  made.push(rule);
  rejoin();
  if (SIDES[0].mate[a] !== b) byId("join").prepend(make("p", "warning", "The rule does not join these two: they are different calls of their modules."));
  else select(SIDES[0], a);
}
