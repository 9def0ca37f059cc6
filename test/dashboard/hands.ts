import type { Locator, Page } from "playwright-core";

/** How a scene acts in a page. */
export interface Hands {
  press(target: Locator): Promise<void>;
  fill(target: Locator, text: string): Promise<void>;
  /** Of a list that opens. */
  choose(target: Locator, option: string): Promise<void>;
}

/** In place of what the field with the focus holds. */
async function overwrite({ keyboard }: Page, text: string): Promise<void> {
  await keyboard.press("Control+a");
  await keyboard.insertText(text);
}

export const mouse: Hands = {
  press: (target) => target.click(),
  async fill(target, text) {
    await target.click();
    await overwrite(target.page(), text);
  },
  async choose(target, option) {
    await target.selectOption({ label: option });
  },
};

/** More than any page has places where the focus may stand. */
const tabsMax = 150;

/** Whether the focus stands on the element, and if so, what its key is and whether its focus is seen. */
const focusOn = (target: Locator) =>
  target.evaluate((element) => {
    // An editor stands in a tree of its own, and its frame outside shows the focus.
    const tree = element.getRootNode() as Document | ShadowRoot;
    if (tree.activeElement !== element)
      return { isThere: false as const, isNowhere: document.activeElement === document.body };
    const frame = tree instanceof ShadowRoot ? tree.host.closest(".editor") : null;
    const { outlineStyle, boxShadow } = getComputedStyle(frame ?? element);
    const isSeen = outlineStyle !== "none" || boxShadow !== "none";
    return { isThere: true as const, isSeen, key: element.matches("[type=checkbox]") ? "Space" : "Enter" };
  });

/** Nothing but keys: Tab until the focus stands there, past the navigation by the link that every page begins with. */
export function keyboard(page: Page): Hands {
  const reach = async (target: Locator): Promise<string> => {
    await target.waitFor();
    for (let tabs = 0; tabs < tabsMax; tabs++) {
      const focus = await focusOn(target);
      if (focus.isThere && !focus.isSeen) throw new Error(`the focus on ${target} is not seen`);
      if (focus.isThere) return focus.key;
      await page.keyboard.press("Tab");
      const skips = focus.isNowhere && (await page.locator("a.skip:focus").count()) > 0;
      if (skips) await page.keyboard.press("Enter");
    }
    throw new Error(`${tabsMax} times Tab do not lead to ${target}`);
  };
  return {
    press: async (target) => page.keyboard.press(await reach(target)),
    fill: async (target, text) => {
      await reach(target);
      await overwrite(page, text);
    },
    choose: async (target, option) => {
      await reach(target);
      const chosen = () => target.evaluate((list: HTMLSelectElement) => list.selectedOptions[0]?.label);
      const options = await target.locator("option").count();
      for (const key of ["Home", ...Array.from({ length: options }, () => "ArrowDown")]) {
        if ((await chosen()) === option) return;
        await page.keyboard.press(key);
      }
      if ((await chosen()) !== option) throw new Error(`no key leads to ${option} of ${target}`);
    },
  };
}
