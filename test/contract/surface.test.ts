import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { matrixPath, routesIn } from "../support/auth-matrix.ts";
import { cataloguePath, catalogueText } from "../support/catalogue.ts";
import { everyFrame, shapeOf } from "../support/frames.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { plausibleSecrets, undescribed, unusedWords } from "../support/undescribed.ts";

/**
 * The operations that proto/README.md 'Who may call' names as public, and none besides (`/docs` is a page
 * without data).
 */
const publicPaths = [
  "/api/v1/auth/issuers",
  "/api/v1/auth/login",
  "/api/v1/auth/login-by-link",
  "/api/v1/auth/oidc/{id}/callback",
  "/api/v1/auth/oidc/{id}/device",
  "/api/v1/auth/oidc/{id}/device-token",
  "/api/v1/auth/oidc/{id}/logout",
  "/api/v1/auth/oidc/{id}/start",
  "/api/v1/auth/validate",
  "/api/v1/capabilities",
  "/api/v1/openapi.json",
  "/api/v1/platform/auth/login",
  "/api/v1/webhooks/{id}",
  "/health",
  "/openapi.json",
  "/ready",
  "/svc.v1.SvcService/GetCapabilities",
  "/svc.v1.SvcService/Health",
];

describe("what the server offers", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
  });
  afterAll(() => server?.stop());

  const routes = async () => (await server.api("/api/v1/routes")).body.routes;

  test("is as written down in auth-matrix.txt (`bun run refresh` writes it)", async () => {
    const ways = (await routes()).map(
      ({ name, action, protocol, method, path }: Record<string, string>) =>
        `${name}  ${action}  ${protocol}  ${method} ${path}`,
    );
    const frames = everyFrame(server.running.registry).map(
      ({ operation: { name, action }, from, type, schema }) =>
        `${name}  ${action}  websocket  ${from} ${type} ${shapeOf(schema)}`,
    );
    expect([...ways, ...frames].sort()).toEqual(routesIn(await Bun.file(matrixPath).text()));
  });

  test("is what the command line offers (`bun run refresh` writes src/cli/operations.json)", async () => {
    expect(catalogueText(server.running.registry) === (await Bun.file(cataloguePath).text())).toBe(true);
  });

  test("is public exactly where the spec says so", async () => {
    const open = (await routes()).filter((route: { action: string }) => route.action === "public");
    expect([...new Set(open.map((route: { path: string }) => route.path))].sort()).toEqual(publicPaths);
  });

  test("is described by valid OpenAPI 3.1, route by route", async () => {
    const { body } = await server.api("/openapi.json");
    expect((await server.api("/api/v1/openapi.json")).body).toEqual(body);
    expect(await new Validator().validate(structuredClone(body))).toMatchObject({ valid: true });
    for (const { method, path } of await routes())
      expect(
        body.paths[path.replace("...}", "}")]?.[method.toLowerCase()],
        `${method} ${path}`,
      ).toBeDefined();
  });

  test("is described to the last field, with an example of every body", async () => {
    const { body } = await server.api("/openapi.json");
    expect(undescribed(body)).toEqual([]);
    expect(plausibleSecrets(body)).toEqual([]);
    expect(unusedWords(body), "kept for no field: src/edge/field-words.ts, example-values.ts").toEqual([]);
  });

  test("has every kind of fault, with its status on both protocols and what it means", async () => {
    const { body } = await server.api("/openapi.json");
    const refused = await server.api("/api/v1/kv/buckets/none");
    expect(body["x-svc-errors"]).toContainEqual({
      ...{ code: refused.body.code, status: refused.status, connect: "not_found", connect_status: 404 },
      meaning: expect.any(String),
    });
    const answered = Object.values(body.info.description.match(/^\| `\w+` \|/gm)).length;
    expect(answered).toBe(body["x-svc-errors"].length);
  });
});
