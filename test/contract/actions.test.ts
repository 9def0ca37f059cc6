import { expect, test } from "bun:test";
import { actionsText } from "../../src/access/actions.ts";

// After a wanted change: bun run src/access/actions.ts > test/contract/actions.txt
test("who may do what is as written down", async () => {
  expect(actionsText()).toBe(await Bun.file(new URL("./actions.txt", import.meta.url)).text());
});
