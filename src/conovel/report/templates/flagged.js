"use strict";
// Sorts, filters and copies the flagged rows, and keeps verdicts on them until they are saved.
// Texts become text nodes, never HTML.
(() => {
  const data = JSON.parse(document.getElementById("flagged-data").textContent);
  const rows = data.rows.map(([row, site, pattern, reasons, known, id], place) => ({
    place, row, id: id ?? row, verdict: "", kind: "", note: "", site: data.texts[site], pattern: data.texts[pattern],
    known: data.texts[known],
    reasons: reasons.map(([label, value, usual, nearest, share]) =>
      ({ label: data.texts[label], value, usual: data.texts[usual], nearest, share })),
  }));
  for (const row of rows) {
    row.why = [...row.reasons.map(r => r.label), ...(row.known ? [row.known] : [])].join(", ");
    row.words = [row.row, row.site, row.pattern, row.known,
      ...row.reasons.flatMap(r => [r.label, r.value])].join(" ").toLowerCase();
  }
  const byId = id => document.getElementById(id);
  const body = byId("flagged-rows"), more = byId("flagged-more"), count = byId("flagged-count");
  const filter = byId("flagged-filter"), choice = byId("flagged-pattern");
  const PAGE = 50;
  let shown = PAGE, key = "place", down = false, found = rows;

  const keys = {
    place: r => r.place, row: r => r.row, site: r => r.site,
    why: r => r.why,
    value: r => parseFloat(r.reasons[0]?.value), share: r => r.reasons[0]?.share ?? 0,
  };
  const names = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => {
    const [x, y] = [keys[key](a), keys[key](b)];
    if (typeof x === "number") return (isNaN(x) - isNaN(y)) || x - y || a.place - b.place;
    return names.compare(x, y) || a.place - b.place;
  };

  const node = (tag, text, look) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (look) made.className = look;
    return made;
  };
  const percent = share => `${Math.round(100 * share)}%`;
  const detail = row => {
    const list = node("dl", undefined, "reasons");
    for (const reason of row.reasons) {
      const term = node("dt", reason.label), bar = node("span", undefined, "share");
      bar.style.setProperty("--share", percent(reason.share));
      term.append(bar, node("span", percent(reason.share), "percent"));
      const said = node("dd");
      said.append(node("b", reason.value), ` · normally ${reason.usual} · nearest known normal ${reason.nearest}`);
      list.append(term, said);
    }
    if (row.known) list.append(node("dt", row.known));
    for (const [key, words] of [["kind", "Kind of novelty"], ["note", "Note"]]) {
      const label = node("label", `${words} `, "judge"), field = node("input");
      field.value = row[key];
      field.maxLength = 500;
      field.addEventListener("input", () => { row[key] = field.value; touched(); });
      label.append(field);
      list.append(node("dd"));
      list.lastChild.append(label);
    }
    return list;
  };
  const WORDS = ["novel", "normal", "unclear"];
  const saveVerdicts = byId("verdicts-save");
  let unsaved = false;
  const judged = () => rows.filter(r => r.verdict);
  const touched = () => {
    const n = judged().length;
    unsaved = n > 0;
    saveVerdicts.disabled = !n;
    saveVerdicts.textContent = n ? `Save verdicts (${n.toLocaleString("en")})` : "Save verdicts";
  };
  const verdict = row => {
    const cell = node("td"), group = node("div", undefined, "judge");
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", `Verdict on ${row.row}`);
    for (const word of WORDS) {
      const button = node("button", word);
      button.type = "button";
      button.setAttribute("aria-pressed", String(row.verdict === word));
      button.addEventListener("click", () => {
        row.verdict = row.verdict === word ? "" : word; // a second press takes it back
        for (const other of group.children) {
          other.setAttribute("aria-pressed", String(other.textContent === row.verdict));
        }
        touched();
      });
      group.append(button);
    }
    cell.append(group);
    return cell;
  };
  const line = row => {
    const made = node("tr"), name = node("th", row.row, row.row.length <= 16 ? "short" : "");
    name.scope = "row";
    made.append(name);
    if (data.several) made.append(node("td", row.site, row.site.length <= 16 ? "short" : ""));
    made.append(verdict(row));
    const why = node("td"), folded = node("details");
    folded.append(node("summary", row.why || "no reason"));
    folded.addEventListener("toggle", () => {
      if (folded.open && folded.childElementCount === 1) folded.append(detail(row));
    });
    why.append(folded);
    made.append(why, node("td", row.reasons[0]?.value ?? "", "n"),
      node("td", row.reasons[0]?.usual ?? ""), node("td", percent(row.reasons[0]?.share ?? 0), "n"));
    return made;
  };
  const draw = () => {
    body.replaceChildren(...found.slice(0, shown).map(line));
    const n = found.length, here = Math.min(shown, n);
    const said = n === 1 ? "1 row" : `${n.toLocaleString("en")} rows`;
    count.textContent = here < n ? `${said}, ${here.toLocaleString("en")} shown` : said;
    more.hidden = here >= n;
  };
  let waiting;
  const choose = () => {
    clearTimeout(waiting); // a later redraw would close reasons that were opened since
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = rows.filter(r => (!choice.value || r.pattern === choice.value)
      && words.every(word => r.words.includes(word)));
    found.sort(compare);
    if (down) found.reverse();
    shown = PAGE;
    draw();
  };

  filter.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(choose, 120); });
  choice.addEventListener("change", choose);
  more.addEventListener("click", () => { shown += 10 * PAGE; draw(); });
  for (const button of document.querySelectorAll("[data-pattern]")) {
    button.addEventListener("click", () => {
      choice.value = button.dataset.pattern;
      choose();
      byId("flagged-table").scrollIntoView();
    });
  }
  const title = node("th", "verdict");
  title.scope = "col";
  document.querySelector("#flagged-table thead th[data-key=why]").before(title);
  for (const head of document.querySelectorAll("#flagged-table thead th[data-key]")) {
    const button = node("button", head.textContent, "sort");
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      down = key === head.dataset.key ? !down : head.dataset.key === "share";
      key = head.dataset.key;
      for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      choose();
    });
  }

  // A spreadsheet would run a cell that begins like a formula; a number is left as it is. The same
  // rule as in rows/storage.py.
  const cell = value => {
    const text = String(value), plain = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
    const safe = /^'*[=+\-@\t\r\n＝＋－＠]/.test(text) && !plain ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const csv = () => {
    const most = Math.max(1, ...found.map(r => r.reasons.length)), head = ["row"];
    if (data.several) head.push("site");
    const like = rows.some(r => r.known);
    head.push("pattern", ...(like ? ["known"] : []));
    for (let i = 1; i <= most; i++) head.push(`reason_${i}`, `value_${i}`, `normally_${i}`, `nearest_normal_${i}`, `share_${i}`);
    const lines = found.map(r => [r.row, ...(data.several ? [r.site] : []), r.pattern,
      ...(like ? [r.known] : []), ...r.reasons.flatMap(x => [x.label, x.value, x.usual, x.nearest, x.share])]);
    return [head, ...lines].map(cells => cells.map(cell).join(",")).join("\r\n") + "\r\n";
  };
  const said = byId("flagged-said");
  const tell = text => { said.textContent = text; };
  const oldWay = text => {
    const area = node("textarea", text);
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  byId("flagged-copy").addEventListener("click", async () => {
    const text = csv();
    let done = true;
    try { await navigator.clipboard.writeText(text); } catch { done = oldWay(text); }
    tell(done ? `Copied ${count.textContent.split(",")[0]} as CSV.` : "The browser refused to copy: save the CSV instead.");
  });
  const save = (text, name) => {
    const link = node("a"), address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.href = address;
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    tell(`Saved as ${name}.`);
  };
  byId("flagged-save").addEventListener("click", () => save(csv(), "flagged-rows.csv"));
  saveVerdicts.addEventListener("click", () => {
    const agents = rows.some(r => r.site), head = ["id", "verdict", "kind", "note"];
    const lines = judged().map(r => [r.id, r.verdict, r.kind, r.note, ...(agents ? [r.site] : [])]);
    const table = [[...head, ...(agents ? ["agent"] : [])], ...lines];
    save(table.map(cells => cells.map(cell).join(",")).join("\r\n") + "\r\n", "verdicts.csv");
    unsaved = false;
  });
  addEventListener("beforeunload", event => { if (unsaved) event.preventDefault(); });

  byId("flagged-tools").hidden = false;
  byId("flagged-static").hidden = true;
  byId("verdicts-note").hidden = false;
  choose();
})();
