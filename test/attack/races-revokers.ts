import type { Answer, TestServer } from "../support/server.ts";
import { made, password, type Stage, type StandingName, type Tag } from "./races-stage.ts";

/** An operation that takes a right away. */
export interface Revoker {
  name: string;
  /** Of the registry. */
  operation: string;
  /** Who lives by one of these is without rights a second later. */
  kills: readonly Tag[];
  /** Credentials that must stand for it to be asked. */
  needs: readonly StandingName[];
  /** Passwords are hashed before the write, and not in no time: what begins up to so much later may meet it. */
  computesMs?: number;
  /** What has to be there before the race. */
  prepare?(stage: Stage): Promise<void>;
  run(stage: Stage, node: TestServer): Promise<Answer>;
}

/** Of one hash beside those of other attempts. */
const hashingMs = 150;
export const changedPassword = "another horse battery";

const remove =
  (path: (stage: Stage) => string, key = (stage: Stage) => stage.boss) =>
  (stage: Stage, node: TestServer) =>
    stage.call(node, path(stage), { method: "DELETE", key: key(stage) });
const send =
  (method: string, path: (stage: Stage) => string, body: (stage: Stage) => object, platform = false) =>
  (stage: Stage, node: TestServer) =>
    stage.call(node, path(stage), {
      method,
      key: platform ? stage.world.platform : stage.boss,
      body: body(stage),
    });
const ofPlatform = (stage: Stage) => stage.world.platform;

/** Takes the role off everybody where that must be said; where it need not be, that word may be unknown. */
const removeRole =
  (path: (stage: Stage) => string, key: (stage: Stage) => string) =>
  async (stage: Stage, node: TestServer) => {
    const forced = await remove((one) => `${path(one)}?force=true`, key)(stage, node);
    return forced.status === 400 ? remove(path, key)(stage, node) : forced;
  };

const everything = { effect: "deny", actions: "*", resources: "*" };
const nothing = { effect: "deny", actions: "*", resources: "irn:svc:*:*:function:*:nobodys" };
/** Policies of the attempts, by stage. */
const policies = new WeakMap<Stage, string>();
const policyOf = (stage: Stage) => policies.get(stage)!;
const makePolicy =
  (what: object, isAssigned: boolean, platform = false) =>
  async (stage: Stage) => {
    const [node] = stage.world.nodes as [TestServer];
    const base = platform ? "/api/v1/platform" : "/api/v1";
    const key = platform ? stage.world.platform : stage.boss;
    const policy = await stage.call(node, `${base}/policies`, {
      key,
      body: { name: `no-${stage.id}`, ...what },
    });
    policies.set(stage, made(policy).id);
    if (!isAssigned) return;
    const role = platform ? stage.platformRole : stage.role;
    const body = { policy_id: policyOf(stage) };
    made(await stage.call(node, `${base}/roles/${role}/policies`, { key, body }));
  };
const keyPath = (stage: Stage) => `/api/v1/apikeys/${stage.keyId}`;
const platformKeyPath = (stage: Stage) => `/api/v1/apikeys/${stage.platformKeyId}`;
const userPath = (stage: Stage) => `/api/v1/users/${stage.userId}`;
const platformUserPath = (stage: Stage) => `/api/v1/platform/users/${stage.platformUserId}`;
const rolePath = (stage: Stage) => `/api/v1/roles/${stage.role}`;
const platformRolePath = (stage: Stage) => `/api/v1/platform/roles/${stage.platformRole}`;

export const revokers: readonly Revoker[] = [
  {
    name: "delete the key",
    operation: "keys.delete",
    kills: ["key"],
    needs: ["key", "desktop"],
    run: remove(keyPath),
  },
  {
    name: "rotate the key",
    operation: "keys.rotate",
    kills: ["keyText"],
    needs: ["key", "desktop"],
    run: send(
      "POST",
      (stage) => `${keyPath(stage)}/rotate`,
      () => ({}),
    ),
  },
  {
    name: "take the key's roles",
    operation: "keys.setRoles",
    kills: ["keyRoles"],
    needs: ["key", "desktop"],
    run: send(
      "PUT",
      (stage) => `${keyPath(stage)}/roles`,
      () => ({ role_ids: [] }),
    ),
  },
  {
    name: "rotate the environment's key",
    operation: "environments.rotateKey",
    kills: ["compat"],
    needs: ["compat"],
    run: (stage, node) =>
      node.rpc("EnvironmentService", "RotateAPIKey", { id: stage.env }, { key: stage.boss }),
  },
  {
    name: "delete the user",
    operation: "users.delete",
    kills: ["user"],
    needs: ["user"],
    run: remove(userPath),
  },
  {
    name: "take the user's roles",
    operation: "users.update",
    kills: ["userRoles"],
    needs: ["user"],
    run: send("PATCH", userPath, () => ({ roles: [] })),
  },
  {
    name: "change the own password",
    operation: "users.changePassword",
    kills: ["password"],
    needs: ["user"],
    computesMs: 2 * hashingMs,
    run: (stage, node) =>
      stage.call(node, `${userPath(stage)}/password`, {
        method: "PATCH",
        key: stage.standing.user!.text,
        body: { current_password: password, new_password: changedPassword },
      }),
  },
  {
    name: "log out",
    operation: "auth.logout",
    kills: ["session"],
    needs: ["user"],
    run: (stage, node) =>
      stage.call(node, "/api/v1/auth/logout", { method: "POST", key: stage.standing.user!.text }),
  },
  {
    name: "end the user's sessions",
    operation: "users.endSessions",
    kills: ["session"],
    needs: ["user"],
    run: remove((stage) => `${userPath(stage)}/sessions`),
  },
  {
    name: "end the own session by its id",
    operation: "auth.endSession",
    kills: ["session"],
    needs: ["user"],
    async run(stage, node) {
      const key = stage.standing.user!.text;
      const own = await stage.call(node, "/api/v1/auth/sessions", { key });
      const { id } = own.body.sessions.find((one: { is_current: boolean }) => one.is_current);
      return stage.call(node, `/api/v1/auth/sessions/${id}`, { method: "DELETE", key });
    },
  },
  {
    name: "delete the role",
    operation: "roles.delete",
    kills: ["role"],
    needs: ["key", "desktop", "user"],
    run: removeRole(rolePath, (stage) => stage.boss),
  },
  {
    name: "give the role a weaker base",
    operation: "roles.update",
    kills: ["roleBase"],
    needs: ["key", "desktop", "user"],
    run: send("PATCH", rolePath, () => ({ base: "viewer" })),
  },
  {
    name: "give the role a policy",
    operation: "policies.assign",
    kills: ["role"],
    needs: ["key", "desktop", "user"],
    prepare: makePolicy(everything, false),
    run: send(
      "POST",
      (stage) => `${rolePath(stage)}/policies`,
      (stage) => ({ policy_id: policyOf(stage) }),
    ),
  },
  {
    name: "make the role's policy wider",
    operation: "policies.update",
    kills: ["role"],
    needs: ["key", "desktop", "user"],
    prepare: makePolicy(nothing, true),
    run: send(
      "PATCH",
      (stage) => `/api/v1/policies/${policyOf(stage)}`,
      () => everything,
    ),
  },
  {
    name: "delete the environment",
    operation: "environments.delete",
    kills: ["env"],
    needs: ["key", "desktop", "compat"],
    run: remove((stage) => `/api/v1/environments/${stage.env}`),
  },
  {
    name: "delete the project",
    operation: "projects.delete",
    kills: ["project"],
    needs: ["key", "desktop", "compat"],
    run: remove((stage) => `/api/v1/projects/${stage.project}`),
  },
  {
    name: "delete the own org",
    operation: "orgs.delete",
    kills: ["org"],
    needs: ["key", "desktop", "user"],
    run: remove((stage) => `/api/v1/orgs/${stage.org}`),
  },
  {
    name: "delete the tenant",
    operation: "platform.tenants.delete",
    kills: ["org"],
    needs: ["key", "desktop", "user"],
    run: remove((stage) => `/api/v1/platform/tenants/${stage.org}`, ofPlatform),
  },
  {
    name: "delete the platform user",
    operation: "platform.users.delete",
    kills: ["platformUser"],
    needs: ["platformUser"],
    run: remove(platformUserPath, ofPlatform),
  },
  {
    name: "deactivate the platform user",
    operation: "platform.users.update",
    kills: ["platformUser"],
    needs: ["platformUser"],
    run: send("PATCH", platformUserPath, () => ({ is_active: false }), true),
  },
  {
    name: "take the platform user's roles",
    operation: "platform.users.update",
    kills: ["platformUserRoles"],
    needs: ["platformUser"],
    run: send("PATCH", platformUserPath, () => ({ role_ids: [] }), true),
  },
  {
    name: "change the platform user's password",
    operation: "platform.users.update",
    kills: ["platformPassword"],
    needs: ["platformUser"],
    computesMs: hashingMs,
    run: send("PATCH", platformUserPath, () => ({ password: changedPassword }), true),
  },
  {
    name: "delete the platform role",
    operation: "platform.roles.delete",
    kills: ["platformRole"],
    needs: ["platformUser", "platformKey"],
    run: removeRole(platformRolePath, ofPlatform),
  },
  {
    name: "give the platform role a weaker base",
    operation: "platform.roles.update",
    kills: ["platformRoleBase"],
    needs: ["platformUser", "platformKey"],
    run: send("PATCH", platformRolePath, () => ({ base: "platform_viewer" }), true),
  },
  {
    name: "give the platform role a policy",
    operation: "platform.policies.assign",
    kills: ["platformRole"],
    needs: ["platformUser", "platformKey"],
    prepare: makePolicy(everything, false, true),
    run: send(
      "POST",
      (stage) => `${platformRolePath(stage)}/policies`,
      (stage) => ({ policy_id: policyOf(stage) }),
      true,
    ),
  },
  {
    name: "make the platform role's policy wider",
    operation: "platform.policies.update",
    kills: ["platformRole"],
    needs: ["platformUser", "platformKey"],
    prepare: makePolicy(nothing, true, true),
    run: send(
      "PATCH",
      (stage) => `/api/v1/platform/policies/${policyOf(stage)}`,
      () => everything,
      true,
    ),
  },
  {
    name: "delete the platform key",
    operation: "keys.delete",
    kills: ["platformKey"],
    needs: ["platformKey"],
    run: remove(platformKeyPath, ofPlatform),
  },
  {
    name: "rotate the platform key",
    operation: "keys.rotate",
    kills: ["platformKeyText"],
    needs: ["platformKey"],
    run: send(
      "POST",
      (stage) => `${platformKeyPath(stage)}/rotate`,
      () => ({}),
      true,
    ),
  },
  {
    name: "take the platform key's roles",
    operation: "keys.setRoles",
    kills: ["platformKeyRoles"],
    needs: ["platformKey"],
    run: send(
      "PUT",
      (stage) => `${platformKeyPath(stage)}/roles`,
      () => ({ role_ids: [] }),
      true,
    ),
  },
];
