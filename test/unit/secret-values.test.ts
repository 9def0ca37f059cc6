import { expect, test } from "bun:test";
import { openSecretValues } from "../../src/domain/engine/secrets/service.ts";
import { testClock } from "../../src/kit/clock.ts";
import type { Store } from "../../src/store/store.ts";

test("a secret reaches its function whatever its name means elsewhere", async () => {
  const names = ["__proto__", "constructor", "toString", "plain", "foreign"];
  const values = openSecretValues({
    store: { all: async () => names.map((name) => ({ id: name, name, sealed: name })) } as unknown as Store,
    clock: testClock(),
    keyring: { unseal: async (_place, sealed) => `value of ${sealed}` },
  });
  const found = await values.of("env_a", names.slice(0, 4));
  expect(Object.entries(found).map(([name, value]) => [name, value])).toEqual(
    names.slice(0, 4).map((name) => [name, `value of ${name}`]),
  );
  expect(await values.of("env_a", ["toString"])).toEqual({ toString: "value of toString" } as never);
});
