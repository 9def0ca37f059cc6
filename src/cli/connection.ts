import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { createClient, type Transport } from "../sdk/index.ts";
import { urlsIn } from "../sdk/wire/addresses.ts";
import { type DiscoveredServer, discoveredServer } from "../sdk/wire/discovery.ts";
import { type Io, refused, usage } from "./io.ts";
import { type Profile, readProfiles } from "./profiles.ts";

/** Flags of every command that talks to a server. */
export interface ConnectionFlags {
  server?: string;
  env?: string;
  asOrg?: string;
  profile?: string;
  keyFile?: string;
  /** The key itself; `svc mcp` alone has that flag. */
  apiKey?: string;
}

/** Where a command goes, and as whom: the key is for this server. */
export interface Target {
  url: string;
  key: string | undefined;
  environment: string | undefined;
  /** `X-Svc-Org`. */
  org: string | undefined;
}

export const serverDefault = "http://127.0.0.1:9123";

/** The key in a file: alone, or as the server's first start writes it. */
export function keyIn(file: string): string {
  let text: string;
  try {
    text = readFileSync(file, "utf8").trim();
  } catch (error) {
    throw usage(`${file} cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
  if (!text.startsWith("{")) return text;
  let key: unknown;
  try {
    ({ key } = JSON.parse(text) as { key?: unknown });
  } catch {
    throw usage(`${file} is neither a key nor JSON with the field "key"`);
  }
  if (typeof key !== "string") throw usage(`${file}: the field "key" is missing`);
  return key;
}

export function urlOf(text: string): string {
  const named = /^https?:\/\//.test(text) ? text : `http://${text}`;
  if (!URL.canParse(named)) throw usage(`--server: must be a URL such as ${serverDefault}`);
  return named.replace(/\/+$/, "");
}

/** The profile that is meant; empty when none is. */
export function profileOf(name: string | undefined, io: Io): Profile {
  if (name === "") throw usage("--profile: needs a name");
  const { current, profiles } = readProfiles(io);
  const wanted = name ?? io.environment.SVC_PROFILE ?? current;
  if (!wanted) return {};
  const found = Object.hasOwn(profiles, wanted) ? profiles[wanted] : undefined;
  if (!found) throw usage(`there is no profile ${wanted}: svc profile list shows them`);
  return found;
}

/** The server of the folder, with its own key, where neither a flag nor a variable says whom to ask. */
function foundBy(
  { server, profile, keyFile, apiKey }: ConnectionFlags,
  io: Io,
): DiscoveredServer | undefined {
  const { SVC_SERVER_URL, SVC_API_KEY, SVC_PROFILE, SVC_NO_DISCOVERY } = io.environment;
  const isSaid = [server, profile, keyFile, apiKey].some((one) => one !== undefined);
  if (isSaid || SVC_SERVER_URL || SVC_API_KEY || SVC_PROFILE) return undefined;
  let found: DiscoveredServer | undefined;
  try {
    found = discoveredServer(io.folder, SVC_NO_DISCOVERY ?? "");
  } catch (error) {
    throw usage((error as Error).message);
  }
  if (found && readProfiles(io).current !== undefined)
    io.note(`asks ${found.url}, which ${found.file} names; --profile asks another`);
  return found;
}

/**
 * A flag beats a variable, a variable the profile that is chosen; one that the command names beats variables.
 * A profile's key, environment and org go to its own server, and to another only when the command names both.
 * Where nothing names a server or a key, one that stands in a file of the folder is before the profile.
 */
export function targetOf(flags: ConnectionFlags, io: Io): Target {
  const found = foundBy(flags, io);
  if (found) {
    const environment = flags.env ?? io.environment.SVC_ENV ?? found.environment;
    return { url: found.url, key: found.apiKey, environment: environment || undefined, org: flags.asOrg };
  }
  const { SVC_SERVER_URL: servers, SVC_API_KEY, SVC_ENV, SVC_PROFILE } = io.environment;
  // Workers take all of them.
  const [SVC_SERVER_URL] = urlsIn(servers ?? "");
  const isNamed = flags.profile !== undefined;
  const chosen = profileOf(flags.profile, io);
  const home = urlOf(chosen.server ?? serverDefault);
  const said = flags.server ?? (isNamed ? undefined : SVC_SERVER_URL || undefined);
  const url = said === undefined ? home : urlOf(said);
  const profile = isNamed || url === home ? chosen : {};
  const keyOfProfile = () =>
    profile.keyFile === undefined ? profile.key : keyIn(resolve(io.folder, profile.keyFile));
  const keyOfFlags = () =>
    flags.apiKey ?? (flags.keyFile === undefined ? undefined : keyIn(resolve(io.folder, flags.keyFile)));
  const keyOfVariables = () => {
    if (!SVC_API_KEY) return undefined;
    if (isNamed) return !SVC_SERVER_URL || urlOf(SVC_SERVER_URL) === url ? SVC_API_KEY : undefined;
    if (said === undefined && !SVC_PROFILE && url !== serverDefault)
      throw usage(
        `SVC_API_KEY names no server: say --server or SVC_SERVER_URL, or --profile for the profile's ${url}`,
      );
    return SVC_API_KEY;
  };
  const keys = isNamed ? [keyOfProfile, keyOfVariables] : [keyOfVariables, keyOfProfile];
  return {
    url,
    key: keyOfFlags() ?? keys[0]!() ?? keys[1]!(),
    environment: flags.env ?? (isNamed ? profile.environment || SVC_ENV : SVC_ENV || profile.environment),
    org: flags.asOrg ?? profile.org,
  };
}

const orgHeader = "x-svc-org";

/** One connection of a command, which sends its org with every request. */
export type ServerLink = ReturnType<typeof connect>;

/** The id of an environment of the org that a platform credential acts in. */
async function environmentOf(name: string, transport: Transport, headers: Record<string, string>) {
  const list = await transport.send<{ id: string; name: string }[]>({
    method: "GET",
    path: "/api/v1/environments",
    headers,
  });
  const found = list.find((one) => one.name === name);
  if (!found) throw refused(`there is no environment named ${name}`);
  return found.id;
}

export function connect(target: Target, timeoutMs?: number) {
  const { url, key, environment, org } = target;
  const isOrgs = org !== undefined && environment !== undefined && !environment.startsWith("env_");
  const { transport } = createClient({
    url,
    // Never the variable in its place: it may be for another server.
    apiKey: key ?? "",
    ...(environment !== undefined && !isOrgs && { environment }),
    ...(timeoutMs !== undefined && { timeout: timeoutMs }),
  });
  let headers: Promise<Record<string, string>> | undefined;
  const ask = async (): Promise<Record<string, string>> => {
    if (org === undefined) return {};
    const acting = { [orgHeader]: org };
    if (!isOrgs) return acting;
    return { ...acting, "x-svc-environment": await environmentOf(environment, transport, acting) };
  };
  return {
    target,
    transport,
    /** Headers of every request. */
    headers: (): Promise<Record<string, string>> => {
      headers ??= ask();
      return headers;
    },
  };
}
