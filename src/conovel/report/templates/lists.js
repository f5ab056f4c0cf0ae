"use strict";
// Shows the numbers of the list that the reader chooses. All of them are in the page.
(() => {
  for (const part of document.querySelectorAll(".lists")) {
    const data = JSON.parse(part.querySelector("script").textContent);
    const slider = part.querySelector("input[type=range]");
    const statement = part.querySelector(".statement"), which = part.querySelector(".which");
    const mark = part.querySelector(".chosen"), [left, right, top, bottom] = data.box;
    const text = n => n.toLocaleString("en");
    const rows = i => {
      const k = data.rows[i], flagged = data.flagged[i];
      let words;
      if (part.dataset.kind === "cell") words = `All rows in cell ${text(data.cell[i])} or above.`;
      else if (data.up_to[i] === k) words = `All rows with rank up to ${text(data.rank[i])}.`;
      else words = `${text(k)} of the ${text(data.up_to[i])} rows with rank up to ${text(data.rank[i])}; of equal ranks the highest scores.`;
      words += flagged < k ? ` ${text(flagged)} of them are flagged.` : " All are flagged.";
      if (k <= data.listed) words += ` They are the first ${text(k)} in the table of the most novel rows.`;
      return words;
    };
    const show = () => {
      const i = Number(slider.value), k = data.rows[i];
      const said = `Of the ${text(k)} most novel row${k === 1 ? "" : "s"} at least ${text(data.least[i])} are novel, with ${data.sure} confidence; expected ${text(data.expected[i])}.`;
      statement.textContent = said;
      which.textContent = rows(i);
      slider.setAttribute("aria-valuetext", said);
      const x = left + (right - left) * k / data.most;
      mark.setAttribute("points", `${x},${top} ${x},${bottom}`);
    };
    slider.addEventListener("input", show);
    slider.parentElement.hidden = false;
    show();
  }
})();
