import axe, { type RunOnly } from "axe-core";
import type { Page } from "playwright-core";

export const standards = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/** Breaches of WCAG 2.2 AA as axe finds them. The page's policy holds scripts back, so it comes by the debugger. */
export async function breachesOf(
  page: Page,
  only: RunOnly = { type: "tag", values: standards },
): Promise<string[]> {
  await page.evaluate(axe.source);
  return page.evaluate(async (runOnly) => {
    const { axe: inPage } = window as unknown as { axe: typeof axe };
    const { violations } = await inPage.run({ runOnly });
    return violations.flatMap(({ id, nodes }) =>
      nodes.map(
        ({ html, failureSummary }) => `${id}: ${html.slice(0, 160)} (${failureSummary?.slice(0, 200)})`,
      ),
    );
  }, only);
}
