import { expect, test } from "bun:test";
import { inTurn } from "../../src/kit/in-turn.ts";

test("work of one key goes in its order, and no key waits for another", async () => {
  const begin = inTurn();
  const done: string[] = [];
  const first = Promise.withResolvers<void>();
  const over = Promise.withResolvers<void>();
  begin("a", async () => {
    await first.promise;
    done.push("a1");
  });
  begin("a", async () => void done.push("a2"));
  await new Promise<void>((resolve) =>
    begin("b", async () => {
      done.push("b1");
      resolve();
    }),
  );
  expect(done).toEqual(["b1"]);
  first.resolve();
  begin("a", async () => {
    done.push("a3");
    over.resolve();
  });
  await over.promise;
  expect(done).toEqual(["b1", "a1", "a2", "a3"]);
  // Nothing is left of a key whose work is over: the next begins at once.
  await new Promise<void>((resolve) => begin("a", async () => resolve()));
});

test("who asks gets what the work comes to; one that fails ends its turn, too", async () => {
  const begin = inTurn();
  const failed = begin("a", async () => {
    throw new Error("away");
  });
  const behind = begin("a", async () => 2);
  await expect(failed).rejects.toThrow("away");
  expect(await behind).toBe(2);
});
