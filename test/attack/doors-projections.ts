import type { JsonObject } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import {
  type ProjectionEvent,
  ProjectionEventKind,
  ProjectionService,
} from "../../src/gen/svc/v1/projection_pb.ts";
import { sql } from "../../src/kit/sql.ts";
import type { TestServer } from "../support/server.ts";
import { type DoorIn, protocols, sendText, storedText, transportOf, unlessRefused } from "./doors-in.ts";
import { carriedBy, isObject, messageOf, type Probe } from "./doors-values.ts";

type Put = (door: string, at: number | undefined, value: unknown) => void;

const runnerId = "doors";
const headersOf = (server: TestServer) => ({ headers: { authorization: `Bearer ${server.adminKey}` } });
const clientOf = (server: TestServer, protocol: (typeof protocols)[number]) =>
  createClient(ProjectionService, transportOf(protocol, server));

/** A projection that one event was delivered to, so that states may be saved up to it. */
async function openProjection(server: TestServer, name: string) {
  await server.rpc("ProjectionService", "RegisterProjection", { name, events: [name] });
  const emitted = await server.rpc("SvcService", "Emit", { event: name });
  const polled = await server.rpc("ProjectionService", "PollProjectionEvents", { name, runnerId });
  return { seq: emitted.body.sequence as string, fence: polled.body.fence as string };
}

/** States of projections, each in a partition of its own. */
export async function stateDoors(server: TestServer): Promise<DoorIn[]> {
  const name = "door.states";
  const { seq, fence } = await openProjection(server, name);
  let made = 0;
  const stored = (partition: string) =>
    storedText(
      server,
      sql`SELECT state AS text FROM projection_states WHERE name = ${name} AND partition_key = ${partition}`,
    );
  const saving = (method: string, body: (state: string) => string, field: string): DoorIn => ({
    name: `${method} ${field}`,
    takes: () => true,
    async put({ text }) {
      const partition = `json${++made}`;
      const state = `"partition_key":"${partition}","lastEventSeq":"${seq}","${field}":${text}`;
      const sent = `{"name":"${name}","runnerId":"${runnerId}","fence":"${fence}",${body(state)}}`;
      const answer = await sendText(server, `/svc.v1.ProjectionService/${method}`, sent);
      return answer === undefined ? undefined : stored(partition);
    },
  });
  const one = (state: string) => state;
  const several = (state: string) => `"states":[{${state}}]`;
  const doors = [
    saving("SaveProjectionState", one, "state"),
    saving("SaveProjectionState", one, "stateValue"),
    saving("SaveProjectionState", one, "state_value"),
    saving("SaveProjectionStates", several, "state"),
    saving("SaveProjectionStates", several, "state_value"),
  ];
  for (const protocol of protocols) {
    const client = clientOf(server, protocol);
    doors.push({
      name: `SaveProjectionState over ${protocol}`,
      takes: (probe: Probe) => !probe.textOnly && (probe.finite || protocol !== "connect json"),
      put: ({ text }) => {
        const partitionKey = `message${++made}`;
        const value = JSON.parse(text) as unknown;
        const state = isObject(value) ? { state: value as JsonObject } : { stateValue: messageOf(value) };
        const lease = { runnerId, fence: BigInt(fence), lastEventSeq: BigInt(seq) };
        const saved = client.saveProjectionState(
          { name, partitionKey, ...state, ...lease },
          headersOf(server),
        );
        return unlessRefused(saved.then(() => stored(partitionKey)));
      },
    });
  }
  return doors;
}

/** The values as states, and the events of `event` as runners get them. */
export async function readProjections(
  server: TestServer,
  probes: readonly Probe[],
  { event, place, put }: { event: string; place: ReadonlyMap<string, number>; put: Put },
): Promise<void> {
  const name = "door.read";
  const { seq, fence } = await openProjection(server, name);
  for (const [at, { text }] of probes.entries()) {
    const state = `"partitionKey":"p${at}","lastEventSeq":"${seq}","stateValue":${text}`;
    const sent = `{"name":"${name}","runnerId":"${runnerId}","fence":"${fence}",${state}}`;
    await sendText(server, "/svc.v1.ProjectionService/SaveProjectionState", sent);
    const { body } = await server.api(`/api/v1/projections/${name}?partition=p${at}`);
    put("GET projection", at, body.state?.state);
  }
  const fed = "door.fed";
  await server.rpc("ProjectionService", "RegisterProjection", { name: fed, events: [event] });
  const putEvent = (door: string, { id, data, dataValue }: ProjectionEvent) =>
    put(door, place.get(id), carriedBy(data, dataValue));
  for (const protocol of protocols) {
    const client = clientOf(server, protocol);
    for (const at of probes.keys()) {
      const found = await client.getProjection({ name, partition: `p${at}` }, headersOf(server));
      put(`GetProjection over ${protocol}`, at, carriedBy(found.state, found.stateValue));
    }
    // Without a save the next poll brings the same again.
    const polled = await client.pollProjectionEvents(
      { name: fed, batchSize: 1_000, runnerId },
      headersOf(server),
    );
    for (const one of polled.events) putEvent(`PollProjectionEvents over ${protocol}`, one);
    let left = probes.length;
    const asked = { name: fed, batchSize: 1_000, runnerId };
    for await (const one of client.streamProjectionEvents(asked, headersOf(server))) {
      if (one.kind === ProjectionEventKind.HEARTBEAT) continue;
      putEvent(`StreamProjectionEvents over ${protocol}`, one);
      if (--left === 0) break;
    }
  }
}
