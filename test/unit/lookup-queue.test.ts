import { expect, test } from "bun:test";
import { openLookupQueue } from "../../src/domain/realtime/pubsub/frames.ts";
import { lookEveryMs } from "../../src/domain/realtime/pubsub/limits.ts";
import { testClock } from "../../src/kit/clock.ts";

function queue(sliceMax: number) {
  const clock = testClock();
  const looks: string[] = [];
  const push = openLookupQueue<string>({
    ...{ clock, sliceMax },
    look: async (items) => void looks.push(items.join(" ")),
    onFailed: (error) => expect(error).toBeUndefined(),
  });
  const come = async (...items: string[]) => {
    push(items.map((item) => [item, item]));
    await clock.advance(0);
  };
  return { clock, looks, come };
}

test("the first look begins at once, and what comes behind it gathers for the next, once a key", async () => {
  const { clock, looks, come } = queue(10);
  await come("a");
  expect(looks).toEqual(["a"]);
  await come("b");
  await come("c", "b");
  await clock.advance(lookEveryMs - 1);
  expect(looks).toEqual(["a"]);
  await clock.advance(1);
  expect(looks).toEqual(["a", "b c"]);
  await clock.advance(lookEveryMs);
  await come("d");
  expect(looks).toEqual(["a", "b c", "d"]);
});

test("a whole slice waits for nothing", async () => {
  const { looks, come } = queue(2);
  await come("a");
  await come("b", "c", "d", "e");
  expect(looks).toEqual(["a", "b c", "d e"]);
});
