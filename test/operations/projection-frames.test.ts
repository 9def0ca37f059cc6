import { expect, test } from "bun:test";
import type { Store } from "../../src/store/store.ts";
import { startNats } from "../support/nats.ts";
import { makeHome, startTestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

/** A store whose read with `text` in it waits, once it was asked to be held. */
function heldStore(text: string) {
  let hold: Promise<void> | undefined;
  let release = (): void => {};
  let isReached = false;
  return {
    hold() {
      isReached = false;
      const { promise, resolve } = Promise.withResolvers<void>();
      hold = promise;
      release = resolve;
    },
    isReached: () => isReached,
    release: () => release(),
    around: (store: Store): Store => ({
      ...store,
      async one(query) {
        const found = await store.one(query);
        if (hold && query.strings.join("").includes(text)) {
          const held = hold;
          hold = undefined;
          isReached = true;
          await held;
        }
        return found as never;
      },
    }),
  };
}

/** A projection is rebuilt and is told of as `rebuilding`, and its rebuild ends while the look for that frame is held. */
async function lastHeard(of: "one node" | "two nodes"): Promise<string[]> {
  // What is read only of a projection that is being rebuilt.
  const held = heldStore("FROM projection_rebuilds");
  const nats = of === "two nodes" ? await startNats() : undefined;
  const home = await makeHome(nats ? "postgres" : "libsql");
  const start = (nodeId: string, aroundStore?: (store: Store) => Store) =>
    startTestServer({
      ...{ engine: nats ? "postgres" : "libsql", home, ...(nats && { nats: nats.url }) },
      ...{ settings: { nodeId, pollHoldMs: 0 }, ...(aroundStore && { aroundStore }) },
    });
  const slow = await start("a", held.around);
  const quick = nats ? await start("b") : slow;
  const socket = await openSocket(quick.url, { key: slow.adminKey });
  try {
    await socket.subscribe("system.projection_health.told");
    await until(() => slow.running.domain.frames.wants("projections", slow.env), { about: "the reader" });
    const call = async (node: typeof slow, method: string, body: object) => {
      const answer = await node.rpc("ProjectionService", method, { name: "told", ...body });
      expect([method, answer.status]).toEqual([method, 200]);
    };
    await call(slow, "RegisterProjection", { events: ["told.*"] });
    const { body } = await slow.rpc("SvcService", "Emit", { event: "told.first" });
    await call(slow, "PollProjectionEvents", {});
    held.hold();
    await call(slow, "RebuildProjection", {});
    await until(held.isReached, { about: "the look for the frame of the rebuild" });
    await call(quick, "PollProjectionEvents", {});
    await call(quick, "SaveProjectionState", {
      ...{ state: {}, lastEventSeq: body.sequence, lastEventId: body.eventId },
    });
    const heard = () => socket.of("event").map((frame) => frame.data.status as string);
    if (nats) await until(() => heard().includes("running"), { about: "the end of the rebuild" });
    held.release();
    await until(() => heard().includes("rebuilding"), { about: "the frame that was held" });
    await until(() => heard().at(-1) === "running", { about: "the state as it is", deadlineMs: 5_000 });
    return heard();
  } finally {
    held.release();
    socket.close();
    if (quick !== slow) await quick.stop();
    await slow.stop();
    await nats?.stop();
    await home.remove();
  }
}

test("what is told last of a projection is what was read last", async () => {
  expect(await lastHeard("one node")).toEqual(["rebuilding", "running"]);
}, 120_000);

test("a node whose look was overtaken by another node's change looks again", async () => {
  const heard = await lastHeard("two nodes");
  expect(heard.slice(-2)).toEqual(["rebuilding", "running"]);
}, 120_000);
