import { expect } from "bun:test";
import type { BrowserContextOptions, Locator, Page } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import type { EngineName, TestServer } from "../support/server.ts";
import { type Hands, keyboard, mouse } from "./hands.ts";
import { visit } from "./visit.ts";

/** What a form is given, by label: a text for a field, a word of its own for a list, `true` for a box. */
type Typed = Record<string, string | { option: string } | true>;

/** A page and how it is acted in: by keys alone on libSQL, by the mouse on PostgreSQL. */
export interface Acting {
  page: Page;
  main: Locator;
  hands: Hands;
  /** In the org and the environment that the page shows. */
  go(path: string): Promise<void>;
  press(name: string | RegExp, within?: Locator): Promise<void>;
  /** Opens a form by a button, fills it, and sends it: it has gone then. */
  send(form: { opens: string; within?: Locator; typed?: Typed; sends: string }): Promise<void>;
  /** The text of a secret that is shown once. */
  kept(): Promise<string>;
  heading(name: string): Promise<void>;
  told(text: string | RegExp): Promise<void>;
}

/** `work` in a page of its own, which must complain of nothing. */
export const acting = (
  server: TestServer,
  engine: EngineName,
  asked: { path: string; session: string } & BrowserContextOptions,
  work: (on: Acting) => Promise<void>,
): Promise<void> =>
  inChrome(
    async (browser) => {
      const { page, complaints } = await visit(browser, server, asked);
      const main = page.getByRole("main");
      const dialog = page.getByRole("dialog");
      const hands = engine === "libsql" ? keyboard(page) : mouse;
      const press: Acting["press"] = (name, within = main) =>
        hands.press(within.getByRole("button", { name, exact: true }));
      const fill = async (label: string, value: Typed[string]) => {
        const target = dialog.getByLabel(label, { exact: true });
        if (value === true) await hands.press(target);
        else if (typeof value === "string") await hands.fill(target, value);
        else await hands.choose(target, value.option);
      };
      await work({
        ...{ page, main, hands, press },
        async go(path) {
          await page.waitForURL(/\/dashboard\/[^/]+\/[^/]+\//);
          const [org, environment] = new URL(page.url()).pathname.split("/").slice(2);
          await page.goto(`${server.url}/dashboard/${org}/${environment}/${path}`);
        },
        async send({ opens, within = main, typed = {}, sends }) {
          await press(opens, within);
          await dialog.waitFor();
          for (const [label, value] of Object.entries(typed)) await fill(label, value);
          const sent = dialog.getByRole("button", { name: sends, exact: true });
          await hands.press(sent);
          const refusal = dialog.getByRole("alert");
          await Promise.race([sent.waitFor({ state: "detached" }), refusal.waitFor()]);
          if (await refusal.count()) throw new Error(`${sends}: ${await refusal.textContent()}`);
        },
        async kept() {
          const text = (await dialog.locator("pre").textContent()) ?? "";
          await press("I have kept it", dialog);
          await dialog.waitFor({ state: "detached" });
          return text;
        },
        heading: (name) => page.getByRole("heading", { level: 1 }).getByText(name).first().waitFor(),
        told: (text) => page.getByText(text).first().waitFor(),
      });
      expect(complaints).toEqual([]);
      await page.context().close();
    },
    { patienceMs: 150_000 },
  );
