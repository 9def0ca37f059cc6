import { startTestServer } from "./server.ts";

interface Route {
  name: string;
  action: string;
  method: string;
  path: string;
  protocol: string;
}

/** The route manifest as a reviewer reads it. */
export const surfaceText = (routes: readonly Route[]): string =>
  `${routes
    .map(({ name, action, method, path, protocol }) =>
      [name, action, protocol, `${method} ${path}`].join("  "),
    )
    .sort()
    .join("\n")}\n`;

if (import.meta.main) {
  const server = await startTestServer({ engine: "libsql" });
  const { routes } = (await server.api("/api/v1/routes")).body;
  await Bun.write(new URL("../contract/routes.txt", import.meta.url), surfaceText(routes));
  await server.stop();
  process.exit(0);
}
