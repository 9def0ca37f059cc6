import type { Operation } from "../../src/kit/operation.ts";
import { everyFrame, shapeOf } from "./frames.ts";
import { startTestServer } from "./server.ts";

interface Route {
  name: string;
  action: string;
  method: string;
  path: string;
  protocol: string;
}

/** The route manifest and the frames of the socket as a reviewer reads them. */
export function surfaceText(routes: readonly Route[], registry: readonly Operation[]): string {
  const ways = routes.map(({ name, action, method, path, protocol }) =>
    [name, action, protocol, `${method} ${path}`].join("  "),
  );
  const frames = everyFrame(registry).map(({ operation: { name, action }, from, type, schema }) =>
    [name, action, "websocket", `${from} ${type} ${shapeOf(schema)}`].join("  "),
  );
  return `${[...ways, ...frames].sort().join("\n")}\n`;
}

if (import.meta.main) {
  const server = await startTestServer({ engine: "libsql" });
  const { routes } = (await server.api("/api/v1/routes")).body;
  await Bun.write(
    new URL("../contract/routes.txt", import.meta.url),
    surfaceText(routes, server.running.registry),
  );
  await server.stop();
  process.exit(0);
}
