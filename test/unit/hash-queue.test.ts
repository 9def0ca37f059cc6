import { expect, test } from "bun:test";
import { hashQueue } from "../../src/kit/password.ts";

/** Work that ends when it is let go; names in the order in which they began. */
function stage() {
  const inQueue = hashQueue(1);
  const begun: string[] = [];
  const refused: string[] = [];
  const ends: (() => void)[] = [];
  return {
    begun,
    refused,
    ask(name: string, holder?: string) {
      const work = () =>
        new Promise<void>((end) => {
          begun.push(name);
          ends.push(end);
        });
      inQueue(holder, work).catch(() => refused.push(name));
    },
    async all() {
      for (;;) {
        for (let turn = 0; turn < 10; turn++) await Promise.resolve();
        const end = ends.shift();
        if (!end) return;
        end();
      }
    },
  };
}

test("holders take turns, before all strangers, of whom the newest is next", async () => {
  const { ask, all, begun } = stage();
  ask("first");
  for (const name of ["s1", "s2"]) ask(name);
  for (const name of ["a1", "a2", "a3"]) ask(name, "a");
  ask("b1", "b");
  await all();
  expect(begun).toEqual(["first", "a1", "b1", "a2", "a3", "s2", "s1"]);
});

test("a crowd is refused from its oldest on, a holder's from its newest", async () => {
  const { ask, all, begun, refused } = stage();
  ask("first");
  for (let place = 1; place <= 52; place++) ask(`s${place}`);
  for (let place = 1; place <= 52; place++) ask(`a${place}`, "a");
  await all();
  expect(refused).toEqual(["s1", "s2", "a51", "a52"]);
  expect(begun).toHaveLength(101);
});
