import { expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { pool } from "../../src/store/pool.ts";

const waitMsMax = 1_000;

function twoPlaces() {
  const clock = testClock();
  let failing = false;
  let opened = 0;
  const clients = pool({
    clock,
    sizeMax: 2,
    waitMsMax,
    async open() {
      // A turn of its own, as a connection takes: callers gather meanwhile.
      await Promise.resolve();
      if (failing) throw new Error("too many connections");
      return { number: ++opened, usable: () => true, destroy() {} };
    },
  });
  const fail = (now: boolean) => {
    failing = now;
  };
  return { clients, fail };
}

test("a failed connect leaves those who wait to the connections in use", async () => {
  const { clients, fail } = twoPlaces();
  const busy = await clients.acquire();
  fail(true);
  const opening = clients.acquire().catch((error: Error) => error.message);
  const waiting = clients.acquire();
  expect(await opening).toBe("too many connections");
  expect(clients.waiting()).toBe(1);
  clients.release(busy);
  expect(await waiting).toBe(busy);
});

test("with no connection left a failed connect fails all who wait", async () => {
  const { clients, fail } = twoPlaces();
  fail(true);
  const all = [clients.acquire(), clients.acquire(), clients.acquire()].map((one) =>
    one.catch((error: Error) => error.message),
  );
  expect(await Promise.all(all)).toEqual(Array(3).fill("too many connections"));
  expect([clients.size(), clients.waiting()]).toEqual([0, 0]);
  fail(false);
  expect(await clients.acquire()).toMatchObject({ number: 1 });
});
