import { expect } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { breachesOf } from "../support/axe.ts";
import { inChrome } from "../support/chrome.ts";
import { livedTime } from "../support/lived.ts";
import type { TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { type Hands, keyboard, mouse } from "./hands.ts";
import type { Scene, Stage } from "./scenes.ts";
import { accessScenes } from "./scenes-access.ts";
import { dataScenes } from "./scenes-data.ts";
import { operationScenes } from "./scenes-operation.ts";
import { platformScenes } from "./scenes-platform.ts";
import { workScenes } from "./scenes-work.ts";
import { platformSessionOf, sessionOf, turnTo, visit } from "./visit.ts";

/** Every page of the navigation has a scene, those of the platform too. */
export const scenes = {
  ...{ work: workScenes, data: dataScenes, operation: operationScenes, access: accessScenes },
  platform: platformScenes,
};

interface Playing {
  server: TestServer;
  /** Nothing but keys; every dialog that opens is looked at by axe, and gives the focus back. */
  byKeyboard?: boolean;
}

/** How long each page took to show what was made by the API. */
export type Seen = Record<string, number>;

/** The nets under the frames are taken away: what a page shows came by a frame. */
const withoutNets = (page: Page) =>
  page.addInitScript(() => {
    const set = window.setInterval;
    window.setInterval = ((act: () => void, everyMs: number) =>
      everyMs < 5_000 ? set(act, everyMs) : 0) as typeof window.setInterval;
  });

/** Looks at each dialog that a press opened, and at where the focus stands when it is gone. */
function watchful(page: Page, hands: Hands, breaches: string[]): Hands {
  const dialog = page.locator("dialog[open]");
  return {
    ...hands,
    async press(target) {
      // Its own dialog may still be on its way.
      await target.waitFor();
      const before = await dialog.count();
      await hands.press(target);
      await page.evaluate(() => new Promise(requestAnimationFrame));
      if ((await dialog.count()) <= before) return;
      breaches.push(...(await breachesOf(page)).map((breach) => `dialog after ${target}: ${breach}`));
      await page.keyboard.press("Escape");
      if ((await dialog.count()) === before) {
        const isBack = await until(() => target.evaluate((element) => element === document.activeElement), {
          ...{ about: "the focus to be back", deadlineMs: 5_000 },
        }).catch(() => false);
        if (!isBack) breaches.push(`the focus is not back at ${target}`);
        await hands.press(target);
      }
    },
  };
}

/** What the page says, and what it read last, of a page that does not show what it should. */
const lastWords = (page: Page): Promise<string> =>
  page.evaluate(() => {
    const reads = performance.getEntriesByType("resource").slice(-8) as PerformanceResourceTiming[];
    const told = reads.map(({ name, startTime, duration, responseStatus }) =>
      [name, responseStatus, `at ${Math.round(startTime)} for ${Math.round(duration)} ms`].join(" "),
    );
    return [`now ${Math.round(performance.now())}`, ...told, document.body.textContent.slice(0, 600)].join(
      "\n",
    );
  });

let words = 0;

async function play(
  browser: Browser,
  list: readonly Scene[],
  { server, byKeyboard }: Playing,
): Promise<Seen> {
  const seen: Seen = {};
  const breaches: string[] = [];
  const lived = await livedTime(server.home.place.databaseUrl);
  const sessions = { tenant: await sessionOf(server, "admin"), platform: "" };
  try {
    for (const scene of list) {
      const { path, area } = scene;
      if (area === "platform") sessions.platform ||= await platformSessionOf(server);
      const session = area === "platform" ? sessions.platform : sessions.tenant;
      const { page, complaints } = await visit(browser, server, { path: "~", session, before: withoutNets });
      const own = keyboard(page);
      const stage: Stage = {
        ...{ server, session, page, word: `w${process.pid}x${++words}` },
        hands: byKeyboard ? watchful(page, own, breaches) : mouse,
        button: (name) => page.getByRole("button", { name, exact: true }),
        field: (label) => page.getByLabel(label, { exact: true }),
        link: (name) => page.getByRole("main").getByRole("link", { name, exact: true }),
      };
      // Who signs in is led to the first page of its own.
      await page.locator("nav[aria-label=Pages] a").first().waitFor();
      await turnTo(page, page.url().replace(/[^/]+$/, path));
      await page.getByText("Live", { exact: true }).waitFor();
      await scene.awaits?.(stage);
      const since = lived.now();
      const shown = await scene.make?.(stage);
      await shown?.waitFor().catch(async (error) => {
        throw new Error(`${path}: ${await lastWords(page)}`, { cause: error });
      });
      if (shown) seen[area ? `${area} ${path}` : path] = Math.round(lived.now() - since);
      await scene.act(stage);
      await until(() => scene.found(stage), { about: `the API to say what was done in ${path}` });
      expect([path, complaints, breaches]).toEqual([path, [], []]);
      await page.context().close();
    }
  } finally {
    await lived.stop();
  }
  return seen;
}

/** Plays scenes in a browser; a browser that hangs is followed by another, which begins with the first. */
export const playIn = (list: readonly Scene[], playing: Playing): Promise<Seen> =>
  inChrome((browser) => play(browser, list, playing), { patienceMs: 150_000 });

/** The paths of all pages that the navigation offers, for a claim that none lacks a scene. */
export async function offeredPaths(
  browser: Browser,
  server: TestServer,
  area: Scene["area"],
): Promise<string[]> {
  const session = await (area === "platform" ? platformSessionOf(server) : sessionOf(server, "admin"));
  const { page } = await visit(browser, server, { path: "~", session });
  const links = page.locator("nav[aria-label=Pages] a");
  await links.first().waitFor();
  const paths = await links.evaluateAll((all) => all.map((one) => (one as HTMLAnchorElement).href));
  await page.context().close();
  return paths.map((path) => path.replace(/^.*\//, ""));
}
