import { createClient } from "@connectrpc/connect";
import type { SubscriptionEvent } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import type { Run, Step } from "../../src/gen/svc/v1/types_pb.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import type { TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { openSubscriber } from "../support/stream-subscriber.ts";
import {
  openStreamWorker,
  type Protocol as StreamProtocol,
  protocols as streamProtocols,
  transportOf as streamTransportOf,
} from "../support/stream-worker.ts";
import { until } from "../support/until.ts";
import { readEntity, writeEntity } from "./doors-entities.ts";
import { protocols, sendText, transportOf } from "./doors-in.ts";
import { readProjections } from "./doors-projections.ts";
import { carriedBy, type Probe } from "./doors-values.ts";

/** What each door out gave for the value of this place, by the door's name. */
export type Given = Map<string, unknown[]>;

const event = "door.out";
const streamed = (protocol: StreamProtocol) => `door.out.${protocol.replaceAll(" ", ".")}`;

/** Everybody who listens, before there is anything. */
async function listeners(server: TestServer) {
  const { adminKey: key } = server;
  const pattern = `events:${event}`;
  const at = { url: server.url, grpcUrl: server.running.grpcUrl };
  const calls = new Map<number, unknown>();
  const endpoint = Bun.serve({
    port: 0,
    async fetch(request) {
      const { event: told } = (await request.json()) as {
        event: { data: unknown; metadata: { at: number } };
      };
      calls.set(told.metadata.at, told.data);
      return Response.json({ status: "completed", result: null });
    },
  });
  const triggers = [{ event }];
  const register = (body: object) => server.rpc("SvcService", "RegisterFunction", { triggers, ...body });
  await register({ id: "door.out.push", endpointUrl: `http://127.0.0.1:${endpoint.port}/` });
  await register({ id: "door.out.rest" });
  const workers = [];
  for (const protocol of streamProtocols) {
    const id = streamed(protocol);
    await register({ id });
    const worker = openStreamWorker(streamTransportOf(protocol, at), { key, id: `w-${id}` });
    await worker.register([id], { maxConcurrentJobs: 500 });
    workers.push({ name: `job over ${protocol}`, worker });
  }
  const socket = await openSocket(server.url, { key });
  await socket.subscribe(pattern, { includeMetadata: true });
  const live = protocols.map((protocol) => ({
    name: `Subscribe, live, over ${protocol}`,
    subscriber: openSubscriber(transportOf(protocol, server), { key, pattern, withStart: true }),
  }));
  for (const { name, subscriber } of live) await until(() => subscriber.hasBegun(), { about: name });
  return { endpoint, calls, workers, socket, live, pattern };
}

const dataOf = ({ data, dataValue }: Pick<SubscriptionEvent, "data" | "dataValue">) =>
  carriedBy(data, dataValue);

/** The values as events, inputs, outputs and outputs of steps of one run each. Answers the ids, in the order of the values. */
async function write(server: TestServer, probes: readonly Probe[]) {
  const eventIds: string[] = [];
  for (const [at, { text }] of probes.entries()) {
    const body = `{"event":"${event}","metadata":{"at":${at}},"data":${text}}`;
    const answer = (await sendText(server, "/svc.v1.SvcService/Emit", body)) as
      | { eventId: string }
      | undefined;
    if (!answer) throw new Error(`${probes[at]!.name} was refused`);
    eventIds.push(answer.eventId);
  }
  return eventIds;
}

/** A REST worker that takes each run and gives its input back as output, and as that of a step. */
async function echo(server: TestServer, probes: readonly Probe[], eventIds: readonly string[]) {
  const worker = pullWorker(server, "w-door.out.rest");
  await worker.register("door.out.rest");
  const inputs: unknown[] = [];
  const runIds: string[] = [];
  for (let got = 0; got < probes.length; ) {
    for (const job of await worker.poll(100)) {
      const at = eventIds.indexOf((job.event as { id: string }).id);
      inputs[at] = (job.event as { data: unknown }).data;
      runIds[at] = job.run_id;
      const { text } = probes[at]!;
      const step = `{"id":"${stepIdOf(job, "s")}","name":"s","type":"invoke","status":"completed","output":${text}}`;
      const body = `{"execution_seq":${job.execution_seq},"lease_token":"${job.lease_token}","status":"completed","output":${text},"steps":[${step}]}`;
      await sendText(server, `/api/v1/workers/w-door.out.rest/jobs/${job.job_id}`, body, "PUT");
      got++;
    }
  }
  return { inputs, runIds };
}

/** Writes the values, and reads them at every door. `meddle` is called in between: for the proof that this finds something. */
export async function readEverywhere(
  server: TestServer,
  probes: readonly Probe[],
  meddle: (ids: { eventIds: string[]; runIds: string[] }) => Promise<void> = async () => {},
): Promise<Given> {
  const given: Given = new Map();
  const heard = await listeners(server);
  const eventIds = await write(server, probes);
  const { inputs, runIds } = await echo(server, probes, eventIds);
  given.set("job over REST", inputs);
  await meddle({ eventIds, runIds });
  const place = new Map(eventIds.map((id, at) => [id, at]));
  const put = (door: string, at: number | undefined, value: unknown) => {
    if (!given.has(door)) given.set(door, []);
    if (at !== undefined) given.get(door)![at] = value;
  };

  for (const [at, id] of eventIds.entries())
    put("GET event", at, (await server.api(`/api/v1/events/${id}`)).body?.data);
  for (let cursor = ""; ; ) {
    const { status, body } = await server.api(
      `/api/v1/events?name=${event}&limit=50${cursor && `&cursor=${cursor}`}`,
    );
    if (status !== 200) throw new Error(`GET events answered ${status}`);
    for (const one of body.events) put("GET events", place.get(one.id), one.data);
    cursor = body.next_cursor ?? "";
    if (cursor === "") break;
  }
  await writeEntity(server, probes);
  for (const protocol of protocols) {
    await readRuns(server, protocol, runIds, put);
    await readEntity(server, protocol, probes, put);
  }

  await readProjections(server, probes, { event, place, put });

  const { adminKey: key } = server;
  const later = protocols.map((protocol) => ({
    name: `Subscribe, replay, over ${protocol}`,
    subscriber: openSubscriber(transportOf(protocol, server), { key, pattern: heard.pattern, replay: 1_000 }),
  }));
  for (const { name, subscriber } of [...heard.live, ...later]) {
    await until(() => subscriber.heard.length >= probes.length || subscriber.over() !== undefined, {
      about: name,
    });
    put(name, undefined, undefined);
    for (const one of subscriber.heard) put(name, place.get(one.eventId), dataOf(one));
    subscriber.cut();
  }
  const replaying = await openSocket(server.url, { key });
  await replaying.subscribe(heard.pattern, { replay: 1_000 });
  for (const [name, socket] of [
    ["/ws, live", heard.socket],
    ["/ws, replay", replaying],
  ] as const) {
    await socket.wait("event", probes.length);
    for (const frame of socket.of("event")) put(name, place.get(frame.eventId), frame.data);
    socket.close();
  }
  for (const { name, worker } of heard.workers) {
    const jobs = () => worker.heard.filter((one) => one.case === "job");
    // A job may come twice.
    const handed = () => new Set(jobs().map(({ value }) => value.event!.id)).size;
    await until(() => handed() >= probes.length, { about: name });
    for (const { value } of jobs()) put(name, place.get(value.event!.id), dataOf(value.event!));
    worker.cut();
  }
  await until(() => heard.calls.size >= probes.length, { about: "calls of the endpoint" });
  for (const [at, data] of heard.calls) put("body of a push call", at, data);
  heard.endpoint.stop(true);
  return given;
}

type Put = (door: string, at: number | undefined, value: unknown) => void;

async function readRuns(
  server: TestServer,
  protocol: (typeof protocols)[number],
  runIds: readonly string[],
  put: Put,
) {
  const svc = createClient(SvcService, transportOf(protocol, server));
  const headers = { headers: { authorization: `Bearer ${server.adminKey}` } };
  const place = new Map(runIds.map((id, at) => [id, at]));
  const putRun = (door: string, { id, input, inputValue, output, outputValue }: Run) => {
    put(`${door}, input, over ${protocol}`, place.get(id), carriedBy(input, inputValue));
    put(`${door}, output, over ${protocol}`, place.get(id), carriedBy(output, outputValue));
  };
  for (const id of runIds) {
    putRun("GetRun", await svc.getRun({ id }, headers));
    const { steps } = await svc.getRunSteps({ runId: id }, headers);
    const [step] = steps as Step[];
    put(`GetRunSteps over ${protocol}`, place.get(id), carriedBy(step?.output, step?.outputValue));
  }
  for (let cursor = ""; ; ) {
    const page = await svc.listRuns(
      { functionId: "door.out.rest", limit: 50, ...(cursor && { cursor }) },
      headers,
    );
    for (const run of page.runs) putRun("ListRuns", run);
    cursor = page.nextCursor;
    if (cursor === "") break;
  }
}
