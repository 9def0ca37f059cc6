import type { Locator, Page } from "playwright-core";
import type { TestServer } from "../support/server.ts";
import type { Hands } from "./hands.ts";

/** What a scene plays on. */
export interface Stage {
  /** A node, or the balancer before several. */
  server: TestServer;
  /** Of who looks at the page. */
  session: string;
  page: Page;
  hands: Hands;
  /** In every name that this playing makes: what another one made is not found for it. */
  word: string;
  /** What dialogs and the page hold: `button("Make")`, `field("Name")`. */
  button(name: string | RegExp): Locator;
  field(label: string): Locator;
  link(name: string | RegExp): Locator;
}

/** One page: something is made by the API and seen there, something is done there and found by the API. */
export interface Scene {
  /** Its path, and what the address holds besides. */
  path: string;
  /** Of the platform's pages, at home. */
  area?: "platform";
  /** What no call makes, such as what a loop finds: over before the time counts in which the page shows it. */
  awaits?(stage: Stage): Promise<void>;
  /** Makes something by the API and answers what shows it; none on a page that shows what was there before. */
  make?(stage: Stage): Promise<Locator>;
  act(stage: Stage): Promise<void>;
  /** Whether the API knows what was done. */
  found(stage: Stage): Promise<boolean>;
}

/** Of an answer: what is not 2xx fails the scene with what the server said. */
export function good<Answer extends { status: number; body: unknown }>(answer: Answer): Answer["body"] {
  if (answer.status >= 300) throw new Error(`${answer.status}: ${JSON.stringify(answer.body)}`);
  return answer.body;
}

/** Whether an answer of the API holds the text. */
export const says = (answer: { status: number; body: unknown }, text: string): boolean =>
  JSON.stringify(good(answer)).includes(text);
