import { expect } from "bun:test";
import { isNight } from "../support/night.ts";
import { brokenBeside, brokenNeighbour } from "../support/poisoned.ts";
import { engines } from "../support/server.ts";
import { until } from "../support/until.ts";
import { keptIn, type Promises } from "./worlds.ts";
import { promisesAtRest } from "./worlds-at-rest.ts";

const { "no loop failed": noLoopFailed, "no call met a defect": noDefect } = promisesAtRest;
/** A row that cannot be read is set aside where its tenant sees it. */
const listed: Promises = {
  async "a delayed event that cannot be read is a dead letter"({ api, client }) {
    expect((await client.events.delayed()).events).toEqual([]);
    const { body } = await api("/api/v1/outbox/dead-letter?env=same");
    expect(JSON.stringify(body)).toContain("what is stored of the event cannot be read");
  },
  async "a function that cannot be read is named, and the others start runs"({ api, client }) {
    expect((await client.emit("resting", { how: "sleep" })).runIds).toHaveLength(1);
    expect((await client.emit("unread", {})).runIds).toEqual([]);
    const { body } = await api("/api/v1/integrity/functions.unread/rows");
    expect(body.rows).toMatchObject([{ id: "unread" }]);
  },
  async "a projection that cannot be read stops, and says why"({ client }) {
    const { error } = await until(
      async () => {
        const status = await client.projections.status("rows");
        return status.status === "error" && status;
      },
      { about: "the projection to stop" },
    );
    expect(error?.message).toContain("JSON");
  },
};

// What loops make of a row is the same on both engines: by day on one.
for (const engine of engines.filter((one) => isNight || one === "libsql")) {
  if (isNight)
    keptIn(brokenNeighbour(engine), { "no loop failed": noLoopFailed!, "no call met a defect": noDefect! });
  keptIn(brokenBeside(engine), { ...listed, "no loop failed": noLoopFailed! });
}
