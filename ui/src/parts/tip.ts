/** One tooltip for the page: any element with `data-tip` shows it on hover and focus. */

const MARGIN = 8;

export function startTips(): void {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  const hide = () => {
    tip.hidden = true;
  };
  const show = (event: Event) => {
    const owner = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-tip]") : null;
    const text = owner?.dataset["tip"];
    if (!owner || !text) return hide();
    tip.textContent = text;
    // A dialog is in the top layer: the tip must be inside it to be seen.
    (owner.closest("dialog") ?? document.body).append(tip);
    tip.hidden = false;
    place(tip, owner.getBoundingClientRect());
  };
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "touch") show(event);
  });
  document.addEventListener("focusin", (event) => {
    if (event.target instanceof Element && event.target.matches(":focus-visible")) show(event);
    else hide();
  });
  document.addEventListener("pointerdown", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
}

function place(tip: HTMLElement, owner: DOMRect): void {
  const { width, height } = tip.getBoundingClientRect();
  const left = owner.left + owner.width / 2 - width / 2;
  const above = owner.top - height - MARGIN;
  tip.style.left = `${Math.max(MARGIN, Math.min(innerWidth - width - MARGIN, left))}px`;
  tip.style.top = `${above < MARGIN ? owner.bottom + MARGIN : above}px`;
}
