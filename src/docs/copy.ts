/** A button at each block of code, where the browser lets a page write to the clipboard. */
export function addCopyButtons(): void {
  const { clipboard } = navigator;
  if (!clipboard) return;
  for (const block of document.querySelectorAll<HTMLElement>("main pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await clipboard.writeText(block.textContent ?? "");
      button.textContent = "Copied";
    });
    button.addEventListener("blur", () => {
      button.textContent = "Copy";
    });
    const around = document.createElement("div");
    around.className = "code";
    block.replaceWith(around);
    around.append(block, button);
  }
}
