// Rules in document 004's format: made from two grey nodes, applied to the trees, written as mapping.yaml.
const TOP = "TopLayer";
const made = [];
let handMade = [];

function nearestMatched(side, i) {
  let above = side.parent[i];
  while (above >= 0 && (side.mate[above] < 0 || isStep(side, above))) above = side.parent[above];
  return above;
}

function isBelow(side, i, top) {
  while (i >= 0 && i !== top) i = side.parent[i];
  return i === top;
}

const below = (whole, around) => (around ? whole.slice(around.length + 1) : whole);

/** The rule that joins a node of the left with one of the right: {scope, key, value}; a text where none can. */
function ruleFor(a, b) {
  const [left, right] = SIDES;
  if (isStep(left, a) || isStep(right, b)) return "A step is no module: pick the calls of modules below it.";
  let over = nearestMatched(left, a);
  while (over >= 0 && !isBelow(right, b, left.mate[over])) over = nearestMatched(left, over);
  const around = over < 0 ? ["", ""] : [path(left, over), path(right, left.mate[over])];
  const names = [path(left, a), path(right, b)];
  if (around.some((one, k) => one && !names[k].startsWith(one + "."))) {
    return "One of the two is called from outside of its own module: no rule of names can say that.";
  }
  const parts = names.map((name, k) => below(name, around[k]).split("."));
  while (parts[0].length > 1 && parts[1].length > 1 && parts[0].at(-1) === parts[1].at(-1)) parts.forEach((p) => p.pop());
  const [key, value] = parts.map((p) => p.join("."));
  if (!key || !value) return "One of the two is the model itself, which needs no rule.";
  if (key === value) return `Both are called ${shown(key)} below matched modules already: what differs is which call it is.`;
  return { scope: over < 0 || around[0] === "" ? TOP : bareClass(left, over), key, value };
}

/** What a rule, or nothing, makes of a name below a matched module: longest key first. */
function mapped(rules, name) {
  const fit = Object.keys(rules).filter((key) => name === key || name.startsWith(key + "."));
  const key = fit.sort((x, y) => y.length - x.length)[0];
  return key === undefined ? name : rules[key] + name.slice(key.length);
}

function rulesByScope() {
  const found = {};
  for (const [scope, rules] of Object.entries(DATA.rules)) found[scope] = { ...rules };
  for (const rule of made) (found[rule.scope] ||= {})[rule.key] = rule.value;
  return found;
}

/** Join by the rules made by hand: the modules that they name, and below them what is called alike. */
function applyRules() {
  handMade.forEach(disconnect);
  handMade = [];
  const [left, right] = SIDES, rules = Object.create(null);
  for (const rule of made) (rules[rule.scope] ||= Object.create(null))[rule.key] = rule.value;
  const at = new Map();
  const stepOf = (side, i) => side.raw.nodes[i].step;
  right.raw.nodes.forEach((node, j) => at.set(JSON.stringify([node.step, node.path, node.call]), j));
  const joined = new Set();
  visit(left, (list) => list, (a) => {
    if (left.mate[a] >= 0 || isStep(left, a)) return true;
    const over = nearestMatched(left, a), name = path(left, a);
    const around = over < 0 ? ["", ""] : [path(left, over), path(right, left.mate[over])];
    if (around[0] && !name.startsWith(around[0] + ".")) return true;
    const inside = below(name, around[0]);
    const said = rules[over < 0 || around[0] === "" ? TOP : bareClass(left, over)];
    const other = mapped(said || {}, inside);
    if (other === inside && !joined.has(over)) return true;
    const wanted = around[1] ? `${around[1]}.${other}` : other;
    const b = at.get(JSON.stringify([stepOf(left, a), wanted, left.raw.nodes[a].call]));
    if (b === undefined || right.mate[b] >= 0) return true;
    const link = { nodes: [a, b], verdict: JOINED, why: "joined by hand" };
    connect(link);
    handMade.push(link);
    joined.add(a);
    return true;
  });
}

const PLAIN = /^[A-Za-z_][\w.-]*$/, WORD = /^(null|true|false|yes|no|on|off|y|n|nan|inf)$/i;
const scalar = (text) => (PLAIN.test(text) && !WORD.test(text) ? text
  : JSON.stringify(text).replace(new RegExp(HIDDEN.source, "g"), (c) => shown(c)));

/** All rules, given and made, as the text of a mapping.yaml. */
function asYaml() {
  const found = rulesByScope();
  const scopes = Object.keys(found).sort((x, y) => (y === TOP) - (x === TOP));
  return scopes.map((scope) => [`${scalar(scope)}:`,
    ...Object.entries(found[scope]).map(([key, value]) => `  ${scalar(key)}: ${scalar(value)}`)].join("\n")).join("\n\n") + "\n";
}
