import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const rounds = 10;
const rotations = 60;

describe.each(engines)("on %s, of two changes at once", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    // As few connections as there may be: who waits for a second one, inside a transaction, waits for all the others.
    server = await startTestServer({ engine, settings: { poolSize: 4 } });
  });
  afterAll(() => server?.stop());

  const made = async (path: string, body: object) => {
    const answer = await server.api(path, { body });
    expect(answer.status, JSON.stringify(answer.body)).toBe(201);
    return answer.body as { id: string };
  };

  const kept: [what: string, at: () => Promise<string>, method: string, first: string, second: string][] = [
    [
      "an environment",
      async () => `/api/v1/environments/${(await made("/api/v1/environments", { name: "both" })).id}`,
      "PUT",
      "name",
      "color",
    ],
    [
      "a project",
      async () => `/api/v1/projects/${(await made("/api/v1/projects", { name: "both" })).id}`,
      "PUT",
      "name",
      "description",
    ],
    ["an org", async () => "/api/v1/orgs/org_default", "PATCH", "name", "preferences"],
  ];
  const value = (field: string, round: number): unknown => {
    if (field === "color") return `#${String(round).padStart(6, "0")}`;
    if (field === "preferences")
      return { default_timezone: round % 2 === 0 ? "Europe/Berlin" : "Asia/Tokyo" };
    return `${field}-${round}`;
  };

  test.each(kept)("of %s, each of its own field, both stay", async (_what, at, method, first, second) => {
    const path = await at();
    for (let round = 0; round < rounds; round++) {
      const change = { [first]: value(first, round), [second]: value(second, round) };
      const answers = await Promise.all(
        [first, second].map((field) => server.api(path, { method, body: { [field]: change[field] } })),
      );
      expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
      // Who asks for nothing is answered how it stands.
      expect((await server.api(path, { method, body: {} })).body).toMatchObject(change);
    }
  });

  test("of a secret, the later value is not taken back by a change of its description", async () => {
    await made("/api/v1/secrets", { name: "S", value: "v", description: "d" });
    for (let round = 1; round <= rounds; round++) {
      const answers = await Promise.all([
        server.api("/api/v1/secrets/S", { method: "PUT", body: { value: `v${round}` } }),
        server.api("/api/v1/secrets/S", { method: "PATCH", body: { description: `d${round}` } }),
        server.api("/api/v1/secrets/S", { method: "PUT", body: { value: `w${round}` } }),
      ]);
      expect(answers.map((answer) => answer.status)).toEqual([200, 200, 200]);
      const { body } = await server.api("/api/v1/secrets/S");
      expect(body).toMatchObject({ revision: 1 + 2 * round, description: `d${round}` });
    }
  });

  test("of an environment's key, all are made, and no one waits for a connection that a waiting one has", async () => {
    const { id } = await made("/api/v1/environments", { name: "rotated" });
    const answers = await Promise.all(
      Array.from({ length: rotations }, () => server.rpc("EnvironmentService", "RotateAPIKey", { id })),
    );
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200]));
    const works = await Promise.all(
      answers.map(({ body }) => server.rpc("SvcService", "ListFunctions", {}, { key: body.apiKey })),
    );
    expect(works.filter((answer) => answer.status === 200)).toHaveLength(1);
  });
});
