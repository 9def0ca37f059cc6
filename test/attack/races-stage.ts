import { type NatsServer, startNats } from "../support/nats.ts";
import {
  type Answer,
  type CallOptions,
  type EngineName,
  type Home,
  makeHome,
  startTestServer,
  type TestServer,
  type TestServerOptions,
} from "../support/server.ts";
import { until } from "../support/until.ts";

/**
 * What a credential, or a row, lives by: who takes one of these away ends all that carries its tag. `keyText` is a key's
 * text and `key` the key itself; `session` is one session and `password` all of a user's; `roleBase` is what only admins may.
 */
export type Tag =
  | "org"
  | "project"
  | "env"
  | "role"
  | "roleBase"
  | "key"
  | "keyText"
  | "keyRoles"
  | "compat"
  | "user"
  | "userRoles"
  | "password"
  | "session"
  | "platformRole"
  | "platformRoleBase"
  | "platformUser"
  | "platformUserRoles"
  | "platformPassword"
  | "platformKey"
  | "platformKeyText"
  | "platformKeyRoles";

/** Two nodes on one Postgres with a bus between them; one node on libSQL, whose file is one process's. */
export interface World {
  engine: EngineName;
  nodes: readonly TestServer[];
  /** Of an admin of the platform whom no attempt takes away. */
  platform: string;
  stop(): Promise<void>;
}

export const password = "correct horse battery";
/** Longer than anybody looks: whose poll is let go was let go for a reason. */
const pollHoldMs = 120_000;

export async function openWorld(
  engine: EngineName,
  aroundStore?: TestServerOptions["aroundStore"],
): Promise<World> {
  let nats: NatsServer | undefined;
  let home: Home | undefined;
  const nodes: TestServer[] = [];
  const stop = async () => {
    for (const node of nodes) await node.stop();
    await home?.remove();
    await nats?.stop();
  };
  try {
    if (engine === "postgres") nats = await startNats();
    home = await makeHome(engine);
    for (const nodeId of engine === "postgres" ? ["here", "there"] : ["here"])
      nodes.push(
        await startTestServer({
          engine,
          home,
          ...(nats && { nats: nats.url }),
          ...(aroundStore && { aroundStore }),
          // Every attempt logs in from an address of its own.
          settings: { nodeId, pollHoldMs, trustProxy: true, poolSize: 16 },
        }),
      );
    for (const { api } of nodes)
      await until(async () => (await api("/ready")).status === 200, { about: "the nodes" });
    const [{ api }] = nodes as [TestServer];
    const who = { email: "owner@platform.test", password };
    made(await api("/api/v1/platform/bootstrap", { body: { ...who, name: "Owner" } }));
    const { token } = made(await api("/api/v1/platform/auth/login", { key: null, body: who }));
    return { engine, nodes, platform: token, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The body of an answer that must be good. */
// biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
export function made(answer: Answer): any {
  if (answer.status >= 300) throw new Error(`${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

export interface Standing {
  text: string;
  tags: readonly Tag[];
}

/** All that one attempt is about, its own: an org with an environment in a project, and who may do something there. */
export interface Stage {
  world: World;
  /** `1a2`: in every name. */
  id: string;
  org: string;
  /** The org's admin, by a key that lives in another environment. */
  boss: string;
  project: string;
  env: string;
  role: string;
  keyId: string;
  userId: string;
  userEmail: string;
  platformRole: string;
  platformUserId: string;
  platformUserEmail: string;
  platformKeyId: string;
  /** What is there before the race, by name. */
  standing: Partial<Record<StandingName, Standing>>;
  /** Calls with the address of this attempt. */
  call(node: TestServer, path: string, options?: CallOptions): Promise<Answer>;
  /** Headers of a platform credential that acts in the org. */
  inOrg: Record<string, string>;
}

export type StandingName = "key" | "desktop" | "compat" | "user" | "platformUser" | "platformKey";

const inEnvironment = ["org", "project", "env"] as const;
const keyTags: readonly Tag[] = [...inEnvironment, "role", "roleBase", "key", "keyText", "keyRoles"];
export const tagsOf: Readonly<Record<StandingName, readonly Tag[]>> = {
  key: keyTags,
  desktop: keyTags,
  compat: [...inEnvironment, "compat"],
  user: ["org", "role", "roleBase", "user", "userRoles", "password", "session"],
  platformUser: ["platformRole", "platformRoleBase", "platformUser", "platformUserRoles", "platformPassword"],
  platformKey: ["platformRole", "platformRoleBase", "platformKey", "platformKeyText", "platformKeyRoles"],
};

/** Roles of users are named, or given by id: whichever the server takes. */
export async function withRole(ask: (role: string) => Promise<Answer>, stage: Stage): Promise<Answer> {
  const byId = await ask(stage.role);
  return byId.status === 400 ? ask(`of-${stage.id}`) : byId;
}

/** A stage with those of the standing credentials that the attempt is about. */
export async function setStage(world: World, id: string, names: ReadonlySet<StandingName>): Promise<Stage> {
  const [node] = world.nodes as [TestServer];
  const number = Number.parseInt(id, 36);
  const address = `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`;
  const call: Stage["call"] = (at, path, options = {}) =>
    at.api(path, { ...options, headers: { "x-forwarded-for": address, ...options.headers } });
  const platform = { key: world.platform };
  const post = async (path: string, body: object, options: CallOptions = {}) =>
    made(await call(node, path, { method: "POST", body, ...options }));
  const first = { ...platform, headers: { "x-svc-org": "org_default" } };
  const tenant = await post("/api/v1/tenants/provision", { org_name: `Race ${id}` }, first);
  const boss = { key: tenant.api_key.key as string };
  const project = await post("/api/v1/projects", { name: `p-${id}` }, boss);
  const environment = { name: `e-${id}`, project_id: project.id };
  const { id: env } = await post("/api/v1/environments", environment, boss);
  const { id: role } = await post("/api/v1/roles", { name: `of-${id}`, base: "admin" }, boss);
  const stage: Stage = {
    ...{ world, id, org: tenant.org.id, boss: boss.key, project: project.id, env, role, call },
    ...{ keyId: "", userId: "", userEmail: `u-${id}@race.test`, standing: {} },
    ...{ platformRole: "", platformUserId: "", platformUserEmail: `p-${id}@race.test`, platformKeyId: "" },
    inOrg: { "x-svc-org": tenant.org.id },
  };
  const stand = (name: StandingName, text: string) => {
    stage.standing[name] = { text, tags: tagsOf[name] };
  };
  if (names.has("key") || names.has("desktop")) {
    const key = await post("/api/v1/apikeys", { name: "k", env_id: env, role_ids: [role] }, boss);
    stage.keyId = key.id;
    stand("key", key.key);
  }
  if (names.has("desktop"))
    stand(
      "desktop",
      (await post("/api/v1/auth/desktop-session", {}, { key: stage.standing.key!.text })).token,
    );
  if (names.has("compat"))
    stand("compat", made(await node.rpc("EnvironmentService", "RotateAPIKey", { id: env }, boss)).apiKey);
  if (names.has("user")) {
    const who = { email: stage.userEmail, password };
    const create = (one: string) =>
      call(node, "/api/v1/users", { ...boss, body: { ...who, name: "V", roles: [one] } });
    stage.userId = made(await withRole(create, stage)).id;
    stand("user", (await post("/api/v1/auth/login", who, { key: null })).token);
  }
  if (names.has("platformUser") || names.has("platformKey")) {
    const wanted = { name: `of-${id}`, base: "platform_admin" };
    stage.platformRole = (await post("/api/v1/platform/roles", wanted, platform)).id;
  }
  const role_ids = [stage.platformRole];
  if (names.has("platformUser")) {
    const who = { email: stage.platformUserEmail, password };
    stage.platformUserId = (
      await post("/api/v1/platform/users", { ...who, name: "P", role_ids }, platform)
    ).id;
    stand("platformUser", (await post("/api/v1/platform/auth/login", who, { key: null })).token);
  }
  if (names.has("platformKey")) {
    const key = await post("/api/v1/apikeys", { name: "p", platform: true, role_ids }, platform);
    stage.platformKeyId = key.id;
    stand("platformKey", key.key);
  }
  return stage;
}

/** What the platform may have so many of, and no more: an attempt that is over needs none of it. */
export async function clear(stage: Stage): Promise<void> {
  const { world, call } = stage;
  const [node] = world.nodes as [TestServer];
  const remove = (path: string) => call(node, path, { method: "DELETE", key: world.platform });
  if (stage.platformKeyId !== "") await remove(`/api/v1/apikeys/${stage.platformKeyId}`);
  if (stage.platformUserId !== "") await remove(`/api/v1/platform/users/${stage.platformUserId}`);
  if (stage.platformRole === "") return;
  const role = `/api/v1/platform/roles/${stage.platformRole}`;
  // Taken off everybody, where that must be said.
  if ((await remove(role)).status === 409) await remove(`${role}?force=true`);
}

const isPlatform = (name: StandingName) => name === "platformUser" || name === "platformKey";
/** What only an admin may ask for; whoever may is told that there is no such thing. */
const onlyAdmins = { tenant: "/api/v1/apikeys/ak_none", platform: "/api/v1/platform/roles/prole_none" };

/** Whether the credential may still do what its roles gave it, at any node. */
export async function works(stage: Stage, kind: StandingName, text: string): Promise<boolean> {
  const path = onlyAdmins[isPlatform(kind) ? "platform" : "tenant"];
  const answers = await Promise.all(
    stage.world.nodes.map(async (node) =>
      kind === "compat"
        ? (await node.rpc("SvcService", "ListFunctions", {}, { key: text })).status === 200
        : (await stage.call(node, path, { method: "DELETE", key: text })).status === 404,
    ),
  );
  return answers.includes(true);
}
