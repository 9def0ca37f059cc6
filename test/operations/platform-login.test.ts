import { describe, expect, test } from "bun:test";
import { startTestServer } from "../support/server.ts";

const password = "correct horse battery";
const root = { email: "root@example.com", password, name: "Root" };

describe("the platform's login", () => {
  test("marks its cookie secure where the browser came over TLS", async () => {
    const server = await startTestServer({ engine: "libsql", settings: { trustProxy: true } });
    try {
      await server.api("/api/v1/platform/bootstrap", { body: root });
      const login = (headers: Record<string, string>) =>
        server.api("/api/v1/platform/auth/login", {
          body: { email: root.email, password },
          key: null,
          headers,
        });
      const cookie = async (proto: string) =>
        (await login({ "x-forwarded-proto": proto })).headers.get("set-cookie");
      expect(await cookie("https")).toEndWith("; Secure");
      expect(await cookie("http")).not.toContain("Secure");
    } finally {
      await server.stop();
    }
  });
});

describe("a developer's server", () => {
  test("lets everyone do what the platform may", async () => {
    const server = await startTestServer({ engine: "libsql", settings: { dev: true } });
    try {
      const made = await server.api("/api/v1/platform/tenants", { body: { name: "x" }, key: null });
      expect(made.status).toBe(201);
      expect((await server.api("/api/v1/platform/users", { key: null })).status).toBe(200);
      expect((await server.api("/api/v1/platform/bootstrap", { body: root, key: null })).status).toBe(201);
    } finally {
      await server.stop();
    }
  });
});
