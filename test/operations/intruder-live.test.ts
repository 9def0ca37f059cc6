import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { create, toJsonString } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { EngineMessageSchema } from "../../src/gen/svc/v1/worker_pb.ts";
import { type FurnishedOrg, furnishOrg } from "../support/furnished-org.ts";
import { idsOf, nobodys } from "../support/intruder.ts";
import { listen } from "../support/raw-stream.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { bearerProtocol, openSocket, type SocketOptions, type TestSocket } from "../support/sockets.ts";
import { fenceOf, openStreamWorker, transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

describe.each(engines)("an intruder who listens and works, on %s", (engine) => {
  let server: TestServer;
  let victim: FurnishedOrg;
  let intruder: FurnishedOrg;
  let ids: ReadonlyMap<string, string>;
  /** Each credential as it opens a socket. */
  let ways: Record<string, SocketOptions & { headers?: Record<string, string> }>;

  beforeAll(async () => {
    // The worker of one org must not be answered before the other's has asked.
    server = await startTestServer({ engine, settings: { pollHoldMs: 1 } });
    victim = await furnishOrg(server, "victim");
    intruder = await furnishOrg(server, "intruder");
    const known = await idsOf(server, victim.orgId, victim.environmentId);
    ids = new Map([...known, ["org", victim.orgId], ["proj", victim.projectId]]);
    ways = { ...intruder.visitors, subprotocol: { protocols: ["svc.v1", bearerProtocol(intruder.key)] } };
  }, 120_000);
  afterAll(() => server.stop());

  /** Everything that both could see, if it were theirs. */
  const patterns = () => {
    const own = [
      "events:>",
      "same.>",
      "topic:>",
      "entity:>",
      "system.>",
      "system.run.>",
      "system.function.same.>",
    ];
    const named = [...ids.values()].flatMap((id) => [`system.*.${id}.>`, `system.run.${id}.>`]);
    return [...own, ...named, `system.environment.${victim.environmentId}.deleted`];
  };
  const secrets = () => [victim.marker, ...ids.values()];
  /** What stands in a text of the victim's, apart from what the listener itself has sent. */
  const leaks = (text: string, sent: readonly string[]) =>
    secrets().filter((secret) => !sent.some((own) => own.includes(secret)) && text.includes(secret));

  /** Both orgs do the same things at the same time: events, runs to their end, a function's change. */
  async function bustle(): Promise<void> {
    await Promise.all(
      [victim, intruder].map(async ({ rpc, api, marker }) => {
        await rpc("RegisterFunction", {
          id: "same",
          name: `${marker} again`,
          triggers: [{ event: "same.event" }],
        });
        for (let number = 0; number < 3; number++)
          await rpc("Emit", { event: "same.event", data: { marker } });
        await api("/svc.v1.PubSubService/Publish", { body: { topic: "same.topic", data: { marker } } });
        // Nothing is answered as nothing when the job is not there yet.
        const { jobs } = await until(() => api("/api/v1/workers/same/jobs?available=1"), { about: "a job" });
        const [{ job_id, execution_seq, lease_token }] = jobs;
        await api(`/api/v1/workers/same/jobs/${job_id}`, {
          method: "PUT",
          body: { execution_seq, lease_token, status: "completed", output: { marker } },
        });
      }),
    );
  }

  test("hears its own org alone on sockets, with every credential and every pattern", async () => {
    const sockets: { name: string; socket: TestSocket }[] = [];
    for (const [name, way] of Object.entries(ways)) {
      const socket = await openSocket(server.url, way);
      for (const pattern of patterns()) await socket.subscribe(pattern, { includeMetadata: true });
      // From the beginning, too.
      const past = await socket.subscribe("events:>", { startAfterSequence: 0, includeMetadata: true });
      expect(past.status, name).toBe("ok");
      await socket.subscribe(`system.run.${victim.runId}.>`, { replay: 100 });
      sockets.push({ name, socket });
    }
    const theirs = await openSocket(server.url, { key: victim.key });
    await theirs.subscribe("events:>", { startAfterSequence: 0 });
    await theirs.subscribe("system.>");
    await theirs.subscribe("topic:>");
    await theirs.subscribe(`system.run.${victim.runId}.>`, { replay: 100 });
    for (const { socket } of sockets) {
      // Another org's subscription is nobody's here.
      for (const { subscriptionId } of theirs.of("subscription_result").flatMap(({ results }) => results)) {
        socket.send({ type: "unsubscribe", subscriptionId });
        socket.send({ type: "ack", eventId: ids.get("evt"), ackType: "term" });
      }
    }
    await bustle();
    const heardByAll = () =>
      sockets.every(
        ({ socket }) => socket.texts.filter((text) => text.includes(intruder.marker)).length >= 8,
      );
    await until(heardByAll, { about: "everybody's own events" });
    // The positive control: there was something to hear, and the victim's own listener heard it.
    await until(() => theirs.texts.filter((text) => text.includes(victim.marker)).length >= 8, {
      about: "the victim's events",
    });
    await until(() => theirs.texts.some((text) => text.includes('"topic":"topic:same.topic"')), {
      about: "what the victim published",
    });
    const heard = theirs.texts.join("\n");
    expect(heard).toContain(victim.runId);
    expect(heard).not.toContain(intruder.marker);
    for (const { name, socket } of sockets) {
      for (const text of socket.texts) {
        const frame = JSON.parse(text);
        const { pattern = "" } = frame.type === "subscription_result" ? frame.results[0] : frame;
        expect(leaks(text, [pattern]), `${name}: ${text}`).toEqual([]);
      }
      socket.close();
    }
    theirs.close();
  }, 120_000);

  test("is answered about the victim's runs as about nobody's", async () => {
    const socket = await openSocket(server.url, ways.subprotocol!);
    for (const options of [{}, { replay: 10 }, { startAfterSequence: 1 }]) {
      const ask = async (id: string) => {
        const answer = await socket.subscribe(`system.run.${id}.>`, options);
        return JSON.stringify({ ...answer, subscriptionId: undefined }).replaceAll(id, "ID");
      };
      expect(await ask(victim.runId)).toBe(await ask(nobodys(victim.runId)));
    }
    socket.close();
  });

  test("hears its own org alone on streams, and none in the victim's environment", async () => {
    const streams = [];
    for (const [name, way] of Object.entries(intruder.visitors)) {
      for (const [pattern, options] of [
        ["events:>", { startAfterSequence: "0", includeMetadata: true }],
        ["system.>", {}],
        [`system.run.${victim.runId}.>`, { replay: 100 }],
      ] as const)
        streams.push({ name, pattern, ...listen(server.url, "Subscribe", way, { pattern, options }) });
    }
    const header = `Bearer ${victim.key}`;
    const asked = { pattern: "events:>", options: { startAfterSequence: "0" } };
    const theirs = listen(server.url, "Subscribe", { headers: { authorization: header } }, asked);
    await until(() => theirs.heard.text.includes(victim.marker), { about: "the victim's own" });
    await bustle();
    const own = streams.filter(({ pattern }) => pattern === "events:>");
    await until(() => own.every(({ heard }) => heard.text.split(intruder.marker).length > 4), {
      about: "everybody's own events",
    });
    for (const { name, pattern, heard, cut } of streams) {
      expect(leaks(heard.text, []), `${name} ${pattern}`).toEqual([]);
      cut();
    }
    theirs.cut();
    for (const [name, { headers, query }] of Object.entries(intruder.visitors)) {
      const into = async (environment: string) => {
        const { heard } = listen(
          server.url,
          "Subscribe",
          { headers: { ...headers, "x-svc-environment": environment }, ...(query && { query }) },
          asked,
        );
        await until(() => heard.over, { about: `${name} to be refused` });
        return heard.text.replaceAll(environment, "SENT");
      };
      const refused = await into(victim.environmentId);
      expect(refused, name).toContain("unknown environment");
      expect(refused, name).toBe(await into("env_00000000000000000000000000"));
    }
  }, 120_000);

  test("gets its own jobs alone, and changes none of the victim's by knowing its fence", async () => {
    const transport = transportOf("connect json", { url: server.url, grpcUrl: undefined });
    for (const { rpc } of [victim, intruder])
      await rpc("RegisterFunction", { id: "streamed", triggers: [{ event: "streamed.event" }] });
    const theirs = openStreamWorker(transport, { key: victim.key, id: "same-stream" });
    const mine = openStreamWorker(transport, { key: intruder.key, id: "same-stream" });
    await theirs.register(["streamed"]);
    await mine.register(["streamed"], { maxConcurrentJobs: 5 });
    const ran = await Promise.all(
      [victim, intruder].map(({ rpc, marker }) => rpc("Emit", { event: "streamed.event", data: { marker } })),
    );
    const job = await theirs.hear("job");
    theirs.ack(job);
    const own = await mine.hear("job");
    mine.ack(own);
    expect([job.runId, own.runId]).toEqual(ran.map(({ runIds }) => runIds[0]));
    // The victim's job with the victim's own token, and with nobody's.
    const fence = fenceOf(job);
    const nobodysFence = { ...fence, jobId: job.jobId.replace(job.runId, nobodys(job.runId)) };
    const heardOf = async (stolen: typeof fence) => {
      const before = mine.heard.length;
      // One after the other: how often it is said that a job is lost depends on what is under way together.
      mine.say({ case: "jobAck", value: stolen });
      await mine.hear("cancel");
      mine.say({ case: "heartbeat", value: { workerId: "same-stream", activeJobs: 1, jobs: [stolen] } });
      await mine.hear("leaseRefresh");
      mine.say({ case: "stepCompleted", value: { ...stolen, stepId: "stolen", output: {} as never } });
      await mine.hear("stepAck");
      await mine.hear("cancel");
      mine.say({ case: "jobCompleted", value: { ...stolen, output: { stolen: true } as never } });
      mine.say({ case: "jobAck", value: stolen });
      await mine.hear("cancel");
      return mine.heard
        .slice(before)
        .map((payload) => toJsonString(EngineMessageSchema, create(EngineMessageSchema, { payload })))
        .sort()
        .join("\n")
        .replaceAll(stolen.jobId, "JOB")
        .replaceAll(nobodys(job.runId), "RUN")
        .replaceAll(job.runId, "RUN");
    };
    const ofNobodys = await heardOf(nobodysFence);
    expect(await heardOf(fence)).toBe(ofNobodys);
    expect(ofNobodys).not.toContain('"accepted"');
    const worker = "/api/v1/workers/same-stream";
    for (const path of [`${worker}/jobs/${job.jobId}`, `${worker}/jobs/${nobodysFence.jobId}`]) {
      const { executionSeq, leaseToken } = fence;
      const sent = { execution_seq: Number(executionSeq), lease_token: leaseToken, status: "completed" };
      const answer = await server.api(path, { key: intruder.key, method: "PUT", body: sent });
      expect(answer.status).toBe(404);
    }
    // Untouched: the victim's own worker ends it.
    expect((await victim.rpc("GetRun", { id: job.runId })).status).toBe("RUN_STATUS_RUNNING");
    theirs.complete(job, { fine: true });
    await until(async () => (await victim.rpc("GetRun", { id: job.runId })).status.endsWith("COMPLETED"), {
      about: "the victim's run",
    });
    expect(JSON.stringify(await victim.rpc("GetRun", { id: job.runId }))).not.toContain("stolen");
    for (const payload of mine.heard) {
      const text = toJsonString(EngineMessageSchema, create(EngineMessageSchema, { payload }));
      expect(text).not.toContain(victim.marker);
    }
    theirs.cut();
    mine.cut();
    // A stream into the victim's environment is a stream into none.
    const ends = ["env_00000000000000000000000000", victim.environmentId].map(async (environment) => {
      const headers = { "x-svc-environment": environment };
      const stream = openStreamWorker(transport, { key: intruder.key, id: "same-stream", headers });
      const error = await stream.ended;
      expect(error?.code).toBe(Code.InvalidArgument);
      return error?.rawMessage.replaceAll(environment, "SENT");
    });
    const [none, foreign] = await Promise.all(ends);
    expect(foreign).toBe(none!);
  }, 120_000);
});
