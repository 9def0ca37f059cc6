import type { JsonObject } from "@bufbuild/protobuf";
import { type Client, createClient } from "@connectrpc/connect";
import { EntityStreamService } from "../../src/gen/svc/v1/entity_stream_pb.ts";
import { sql } from "../../src/kit/sql.ts";
import type { TestServer } from "../support/server.ts";
import {
  type DoorIn,
  type Protocol,
  protocols,
  sendText,
  storedText,
  transportOf,
  unlessRefused,
} from "./doors-in.ts";
import { carriedBy, isObject, messageOf, type Probe } from "./doors-values.ts";

const target = { entityId: "door.in", entityType: "door", expectedVersion: -1n };
const event = { eventName: "door.in" };
const targetText = '"entityId":"door.in","entityType":"door","expectedVersion":-1';

interface Made {
  eventId: string;
  results: { eventId: string }[];
  snapshotId: string;
}

/** Appends and snapshots. */
export function entityDoors(server: TestServer): DoorIn[] {
  const dataOf = (id: string) => storedText(server, sql`SELECT data AS text FROM events WHERE id = ${id}`);
  const metadataOf = (id: string) =>
    storedText(server, sql`SELECT metadata AS text FROM events WHERE id = ${id}`);
  const stateOf = (id: string) =>
    storedText(server, sql`SELECT state AS text FROM snapshots WHERE id = ${id}`);
  const send = (method: string, body: string) =>
    sendText(server, `/svc.v1.EntityStreamService/${method}`, body) as Promise<Made | undefined>;

  /** A snapshot replaces another one of its version, so each has a stream of its own. */
  let made = 0;
  async function freshStream(): Promise<string> {
    const entityId = `door.snap.${++made}`;
    await send("AppendEvent", `{"entityId":"${entityId}","entityType":"door","eventName":"door.snap"}`);
    return entityId;
  }

  const json = (
    method: string,
    field: string,
    body: (value: string) => string | Promise<string>,
    stored: (made: Made) => Promise<string>,
  ): DoorIn => ({
    name: `${method} ${field}`,
    takes: ({ text }) => field !== "metadata" || text.startsWith("{"),
    async put({ text }) {
      const answer = await send(method, await body(`"${field}":${text}`));
      return answer && stored(answer);
    },
  });
  const append = (value: string) => `{${targetText},"eventName":"door.in",${value}}`;
  const batch = (value: string) =>
    `{"streams":[{${targetText},"events":[{"eventName":"door.in"},{"event_name":"door.in",${value}}]}]}`;
  const snapshot = async (value: string) =>
    `{"entityId":"${await freshStream()}","entityType":"door","entityVersion":1,${value}}`;
  const ofAppend = ({ eventId }: Pick<Made, "eventId">) => dataOf(eventId);
  const ofBatch = ({ results }: Pick<Made, "results">) => dataOf(results.at(-1)!.eventId);
  const ofSnapshot = ({ snapshotId }: Pick<Made, "snapshotId">) => stateOf(snapshotId);

  const binary = (protocol: Protocol): DoorIn[] => {
    const client = createClient(EntityStreamService, transportOf(protocol, server));
    const headers = { headers: { authorization: `Bearer ${server.adminKey}` } };
    const door = (name: string, put: (value: unknown) => Promise<string>): DoorIn => ({
      name: `${name} over ${protocol}`,
      takes: (probe: Probe) => !probe.textOnly && (probe.finite || protocol !== "connect json"),
      put: ({ text }) => unlessRefused(put(JSON.parse(text))),
    });
    const dataField = (value: unknown) =>
      isObject(value) ? { data: value } : { dataValue: messageOf(value) };
    return [
      door("AppendEvent", async (value) =>
        ofAppend(await client.appendEvent({ ...target, ...event, ...dataField(value) }, headers)),
      ),
      door("AppendEvent data_value", async (value) =>
        ofAppend(await client.appendEvent({ ...target, ...event, dataValue: messageOf(value) }, headers)),
      ),
      door("AppendEvents", async (value) => {
        const events = [event, { ...event, ...dataField(value) }];
        return ofBatch(await client.appendEvents({ streams: [{ ...target, events }] }, headers));
      }),
      door("CreateSnapshot", async (value) => {
        const entityId = await freshStream();
        const state = isObject(value) ? { state: value } : { stateValue: messageOf(value) };
        const sent = { entityId, entityType: "door", entityVersion: 1n, ...state };
        return ofSnapshot(await client.createSnapshot(sent, headers));
      }),
    ];
  };
  return [
    ...["data", "dataValue", "data_value"].map((field) => json("AppendEvent", field, append, ofAppend)),
    json("AppendEvent", "metadata", append, ({ eventId }) => metadataOf(eventId)),
    ...["data", "data_value"].map((field) => json("AppendEvents", field, batch, ofBatch)),
    ...["state", "stateValue"].map((field) => json("CreateSnapshot", field, snapshot, ofSnapshot)),
    ...protocols.flatMap(binary),
  ];
}

type Put = (door: string, at: number | undefined, value: unknown) => void;

const entityId = "door.out";
const pageMax = 50;

/** The value at a place is at that version, from 1. */
export async function writeEntity(server: TestServer, probes: readonly Probe[]): Promise<void> {
  const named = `"entityId":"${entityId}","entityType":"door","eventName":"door.entity"`;
  for (const [at, { text }] of probes.entries()) {
    const body = `{${named},"expectedVersion":${at},"data":${text}}`;
    if (!(await sendText(server, "/svc.v1.EntityStreamService/AppendEvent", body)))
      throw new Error(`the append of ${probes[at]!.name} was refused`);
  }
}

/** The values of the stream at every door, by version. */
export async function readEntity(server: TestServer, protocol: Protocol, probes: readonly Probe[], put: Put) {
  const client = createClient(EntityStreamService, transportOf(protocol, server));
  const headers = { headers: { authorization: `Bearer ${server.adminKey}` } };
  for (let from = 1n; ; ) {
    const page = await client.readStream({ entityId, fromVersion: from, limit: pageMax }, headers);
    for (const { entityVersion, data, dataValue } of page.events)
      put(`ReadStream over ${protocol}`, Number(entityVersion) - 1, carriedBy(data, dataValue));
    from = page.nextVersion;
    if (from === 0n) break;
  }
  for (let from = 1n; ; ) {
    const page = await client.getEntityHistory({ entityId, fromVersion: from, limit: pageMax }, headers);
    for (const { entityVersion, eventData, eventDataValue } of page.entries)
      put(
        `GetEntityHistory over ${protocol}`,
        Number(entityVersion) - 1,
        carriedBy(eventData, eventDataValue),
      );
    from = page.nextCursor;
    if (from === 0n) break;
  }
  await readSnapshots(server, client, protocol, probes, put);
}

/** Each is of the first version, and read before the next one replaces it. */
async function readSnapshots(
  server: TestServer,
  client: Client<typeof EntityStreamService>,
  protocol: Protocol,
  probes: readonly Probe[],
  put: Put,
) {
  const headers = { headers: { authorization: `Bearer ${server.adminKey}` } };
  for (const [at, { text }] of probes.entries()) {
    const body = `{"entityId":"${entityId}","entityType":"door","entityVersion":1,"state":${text}}`;
    await sendText(server, "/svc.v1.EntityStreamService/CreateSnapshot", body);
    const { state, stateValue } = await client.getSnapshot({ entityId }, headers);
    put(`GetSnapshot over ${protocol}`, at, carriedBy(state as JsonObject | undefined, stateValue));
  }
}
