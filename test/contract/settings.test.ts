import { expect, test } from "bun:test";
import { configurationTable } from "../../src/settings/settings.ts";

// After a wanted change: bun run src/settings/settings.ts > test/contract/settings.txt
test("settings are as written down", async () => {
  expect(configurationTable()).toBe(await Bun.file(new URL("./settings.txt", import.meta.url)).text());
});
