import { expect, test } from "bun:test";
import { engines } from "../support/server.ts";
import { attackBatches, type Plant } from "./batches.suite.ts";

const options = { seed: 1, long: false, log: () => {} };

test("batches and keys mean what they say, alone and at once, on one node and two", async () => {
  const { attempts, breaches } = await attackBatches({ ...options, engines });
  expect(breaches).toEqual([]);
  expect(attempts).toBeGreaterThan(1_000);
}, 120_000);

const plants: Record<string, Plant> = {
  "writes half of a refused batch": (send) => async (unit) => {
    const answer = await send(unit);
    const at = Number(/\[(\d+)\]/.exec(answer.message)?.[1] ?? -1);
    if (answer.status === 409 && at > 0) await send({ ...unit, items: unit.items.slice(0, at) });
    return answer;
  },
  "lets the last of a repeated key win": (send) => async (unit) => {
    const answer = await send({ ...unit, items: [...unit.items].reverse() });
    return { ...answer, results: [...answer.results].reverse() };
  },
  "drops an item and answers it all the same": (send) => async (unit) => {
    if (unit.items.length < 4 || unit.items[1]!.key !== undefined) return send(unit);
    const answer = await send({ ...unit, items: unit.items.toSpliced(1, 1) });
    const [first] = answer.results;
    return first ? { ...answer, results: answer.results.toSpliced(1, 0, first) } : answer;
  },
  "answers one result for several": (send) => async (unit) => {
    const answer = await send(unit);
    const isRepeat = new Set(answer.results.map(({ eventId }) => eventId)).size < answer.results.length;
    return isRepeat ? { ...answer, results: answer.results.slice(0, 1) } : answer;
  },
};

test.each(Object.entries(plants))(
  "one that %s is found",
  async (_, plant) => {
    const { breaches } = await attackBatches({ ...options, engines: ["libsql"] }, plant);
    expect(breaches.length).toBeGreaterThan(0);
  },
  60_000,
);
