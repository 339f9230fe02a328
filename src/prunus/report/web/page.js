// All text comes from files of others: it only ever becomes text content, never HTML.
const packed = atob(document.getElementById("data").textContent);
const bytes = new Blob([Uint8Array.from(packed, (character) => character.charCodeAt(0))]);
const unpacked = bytes.stream().pipeThrough(new DecompressionStream("gzip"));
const data = await new Response(unpacked).json();
const dark = matchMedia("(prefers-color-scheme: dark)");
const dialog = document.querySelector("dialog");
const part = (name) => dialog.querySelector(`[data-part="${name}"]`);

function element(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

async function embed(target, specification, rows) {
  const spec = structuredClone(specification);
  if (rows) spec.datasets = {rows};
  const config = {
    background: "transparent", font: "system-ui, sans-serif",
    legend: {columns: Math.max(1, Math.floor(target.clientWidth / 220))},
    axis: {labelOverlap: true, gridColor: dark.matches ? "#343945" : "#dddddd"},
  };
  for (const layer of spec.layer ?? [])
    for (const channel of Object.values(layer.encoding ?? {}))
      if (channel.legend) channel.legend.columns = config.legend.columns;
  return vegaEmbed(target, spec, {
    actions: rows ? false : {export: true, source: false, compiled: false, editor: false},
    renderer: "svg", config, theme: dark.matches ? "dark" : undefined,
  });
}

// The plots of tasks: a click, or Enter where the keyboard is, opens a point; arrows move to the next.

const switches = [...document.querySelectorAll("button[data-view]")];
const viewOf = (number) => Number(switches.find((button) =>
  button.dataset.chart === `${number}` && button.ariaPressed === "true")?.dataset.view ?? 0);

async function draw(number) {
  const target = document.getElementById(`chart-${number}`);
  if (!target) return;  // a dense network alone
  const {chart, caption} = data.charts[number][viewOf(number)];
  document.getElementById(`caption-${number}`).textContent = caption;
  const {view} = await embed(target, chart);
  view.addEventListener("click", (_, item) => open(number, item?.datum?.point));
  const points = [...target.querySelectorAll("svg [aria-label]")]
    .filter((node) => node.__data__?.datum?.point !== undefined)
    .sort((a, b) => a.__data__.datum.at - b.__data__.datum.at);
  points.forEach((node, i) => {
    node.setAttribute("tabindex", i ? "-1" : "0");
    node.setAttribute("role", "button");
    node.addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
      if (event.key === "Enter" || event.key === " ") open(number, node.__data__.datum.point);
      else if (step) {
        const next = points[(i + step + points.length) % points.length];
        node.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
      } else return;
      event.preventDefault();
    });
  });
}

for (const button of switches)
  button.onclick = () => {
    for (const other of switches)
      if (other.dataset.chart === button.dataset.chart) other.ariaPressed = `${other === button}`;
    draw(Number(button.dataset.chart));
  };

// The panel of one ticket

function open(task, point) {
  if (point === undefined) return;
  const {title, tickets} = data.points[task][point];
  part("title").textContent = title;
  const seeds = part("seeds");
  seeds.replaceChildren(...tickets.map((n) => element("option", data.tickets[n].seed, {value: n})));
  seeds.parentElement.hidden = tickets.length < 2;
  seeds.onchange = () => show(task, data.tickets[seeds.value], part("layer").value);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  show(task, data.tickets[tickets[0]]);
}

function show(task, ticket, wantedLayer) {
  part("facts").replaceChildren(
    ...ticket.facts.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  part("settings").replaceChildren(...ticket.settings.map(([name, value]) => {
    const row = element("tr");
    row.append(element("th", name, {scope: "row"}), element("td", value));
    return row;
  }));
  part("command").textContent = ticket.command ?? "";
  part("retraining").hidden = !ticket.command;
  showMask(ticket.pictures, wantedLayer);
  for (const name of ["layers", "blocks"])
    chart(name, {...data.panel[name], height: 17 * ticket[name].length}, ticket[name]);
  const rows = curve(ticket);
  const metric = data.metrics[task];
  part("metric").textContent = `Validation ${metric.name}`;
  for (const [name, spec] of [["value", metric.chart], ["kept", data.panel.kept],
                              ["loss", data.panel.loss]])
    chart(name, spec, rows.filter((row) => row[name] !== null));
}

function curve(ticket) {
  const search = data.curves[ticket.run] ?? [];
  const last = search.findLastIndex((row) => row.stage === ticket.stage);
  const parts = {search: last < 0 ? search : search.slice(0, last + 1),
                 "re-training": data.curves[ticket.retraining] ?? []};
  return Object.entries(parts).flatMap(([part, rows]) => rows.map((row) => ({part, ...row})));
}

function chart(name, specification, rows) {
  const target = part(name);
  target.closest("section").hidden = rows.length === 0;
  if (rows.length) embed(target, specification, rows);
}

function showMask(pictures, wanted) {
  const names = Object.keys(pictures);
  const select = part("layer"), image = part("mask");
  image.closest("section").hidden = names.length === 0;
  if (!names.length) return;
  select.replaceChildren(...names.map((name) => element("option", name, {value: name})));
  const richest = names.reduce((a, b) => pictures[b].length > pictures[a].length ? b : a);
  select.value = names.includes(wanted) ? wanted : richest;
  image.onload = () => {  // whole screen pixels for each of the picture's
    const longer = Math.max(image.naturalWidth, image.naturalHeight);
    image.width = image.naturalWidth * Math.max(1, Math.floor(320 / longer));
  };
  select.onchange = () => {
    image.src = pictures[select.value];
    image.alt = `Mask of ${select.value}: outputs from top to bottom, inputs from left to right`;
  };
  select.onchange();
}

part("close").onclick = () => dialog.close();
dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };
part("copy").onclick = async () => {
  const text = part("command");
  try {
    await navigator.clipboard.writeText(text.textContent);
    part("copied").textContent = "Copied.";
  } catch {  // not every browser lets files use the clipboard
    getSelection().selectAllChildren(text);
    part("copied").textContent = "Selected: copy it with the keyboard.";
  }
};
document.addEventListener("click", (event) => {
  const {task, point} = event.target.dataset ?? {};
  if (point !== undefined) open(Number(task), Number(point));
});

// Tables are sorted by the numbers at the front of their cells, or else by their words.

const sortKey = (row, column) => {
  const text = row.cells[column].textContent.trim().replaceAll(",", "");
  const value = parseFloat(text);
  return text === "" ? undefined : Number.isNaN(value) ? text : value;
};
function compare(a, b) {
  if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}
for (const head of document.querySelectorAll("main th")) {
  const button = element("button", head.textContent, {type: "button"});
  head.replaceChildren(button);
  button.onclick = () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = head.closest("table").tBodies[0], column = head.cellIndex;
    const rows = [...body.rows].map((row) => [sortKey(row, column), row]);
    const empty = (key) => key === undefined;  // stays at the end
    rows.sort(([a], [b]) => (down && !empty(a) && !empty(b) ? compare(b, a) : compare(a, b)));
    body.append(...rows.map(([, row]) => row));
  };
}

const drawAll = () => Promise.all(data.charts.map((_, number) => draw(number)));
drawAll().then(() => document.documentElement.setAttribute("data-drawn", ""));
dark.addEventListener("change", drawAll);

// While a sweep runs, the page is written again and again.

const live = document.getElementById("live");
if (live) {
  live.checked = sessionStorage.getItem("live") !== "no";
  live.onchange = () => sessionStorage.setItem("live", live.checked ? "yes" : "no");
  setInterval(() => { if (live.checked && !dialog.open && !document.hidden) location.reload(); },
              5000);
}
