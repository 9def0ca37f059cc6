import { configBytesMax } from "../../src/domain/state/config/limits.ts";
import { payloadLevelsMax } from "../../src/kit/payload-json.ts";
import type { TestServer } from "../support/server.ts";
import { type DoorIn, sendText } from "./doors-in.ts";
import type { Probe } from "./doors-values.ts";

/** A document is an object, and stands one level deep in its frames. */
const isDocument = ({ text, levels }: Probe) =>
  text.startsWith("{") && levels !== payloadLevelsMax && text.length < configBytesMax;

/** Documents, set and merged into an empty one, as they are read again. */
export function configDoors(server: TestServer): DoorIn[] {
  let made = 0;
  const door = (method: "POST" | "PATCH"): DoorIn => ({
    name: `${method} config`,
    takes: isDocument,
    async put({ text }) {
      const path = `/api/v1/config/door-${++made}`;
      if (method === "PATCH") await sendText(server, path, "{}");
      if ((await sendText(server, path, text, method)) === undefined) return undefined;
      return JSON.stringify((await server.api(path)).body.data);
    },
  });
  return [door("POST"), door("PATCH")];
}
