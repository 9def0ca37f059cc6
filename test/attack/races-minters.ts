import type { Answer, CallOptions, TestServer } from "../support/server.ts";
import { changedPassword } from "./races-revokers.ts";
import { password, type Stage, type StandingName, type Tag, tagsOf, withRole, works } from "./races-stage.ts";

/** What came of it, and still may do something or not. */
export interface Product {
  works(): Promise<boolean> | boolean;
  close?(): void;
}

/** An operation that makes a credential, or something under a parent, or uses a credential. */
export interface Minter {
  name: string;
  /** Of the registry. */
  operation: string;
  /** What its product lives by. */
  under: readonly Tag[];
  /** Credentials that must stand for it to be asked. */
  needs: readonly StandingName[];
  /** Revoking operations of which only one of the two can be done: a refusal of either is right. */
  excludes?: readonly string[];
  /** The product, where the answer was good. */
  run(stage: Stage, node: TestServer): Promise<{ status: number; product?: Product }>;
}

const credential =
  (
    kind: StandingName,
    textOf: (body: never) => string,
    ask: (stage: Stage, node: TestServer) => Promise<Answer>,
  ) =>
  async (stage: Stage, node: TestServer) => {
    const { status, body } = await ask(stage, node);
    if (status >= 300) return { status };
    const text = textOf(body as never);
    return { status, product: { works: () => works(stage, kind, text) } };
  };
export const only =
  (ask: (stage: Stage, node: TestServer) => Promise<Answer>) => async (stage: Stage, node: TestServer) => ({
    status: (await ask(stage, node)).status,
  });

export type By = (stage: Stage) => CallOptions;
export const boss: By = (stage) => ({ key: stage.boss });
export const as =
  (name: StandingName): By =>
  (stage) => ({ key: stage.standing[name]!.text });
export const impersonating: By = (stage) => ({
  key: stage.standing.platformUser!.text,
  headers: stage.inOrg,
});
export const post =
  (by: By, path: (stage: Stage) => string, body: (stage: Stage) => object) =>
  (stage: Stage, node: TestServer) =>
    stage.call(node, path(stage), { method: "POST", body: body(stage), ...by(stage) });

const tokenOf = ({ token }: { token: string }) => token;
const keyOf = ({ key }: { key: string }) => key;
const login = (stage: Stage, node: TestServer, who: object, path = "/api/v1/auth/login") =>
  stage.call(node, path, { key: null, body: who });

const underRole = ["org", "project", "env", "role", "roleBase"] as const;
const newKey = (by: By) =>
  credential(
    "key",
    keyOf,
    post(
      by,
      () => "/api/v1/apikeys",
      ({ env, role }) => ({ name: "n", env_id: env, role_ids: [role] }),
    ),
  );
const platformKeyBy = (by: By) =>
  post(
    by,
    () => "/api/v1/apikeys",
    ({ platformRole }) => ({ name: "n", platform: true, role_ids: [platformRole] }),
  );

/** A user with the role, who logs in afterwards. */
const newUser =
  (by: By, path: "/api/v1/users" | "/api/v1/platform/users") => async (stage: Stage, node: TestServer) => {
    const who = { email: `n-${stage.id}@race.test`, password };
    const isPlatform = path.includes("platform");
    const ask = (role: string) =>
      stage.call(node, path, {
        ...by(stage),
        body: { ...who, name: "N", [isPlatform ? "role_ids" : "roles"]: [role] },
      });
    const { status } = isPlatform ? await ask(stage.platformRole) : await withRole(ask, stage);
    if (status >= 300) return { status };
    const at = isPlatform ? "/api/v1/platform/auth/login" : "/api/v1/auth/login";
    const product = {
      async works() {
        const answer = await login(stage, node, who, at);
        return answer.status === 200 && works(stage, isPlatform ? "platformUser" : "user", answer.body.token);
      },
    };
    return { status, product };
  };

/** What makes credentials. */
export const credentialMinters: readonly Minter[] = [
  {
    name: "log in",
    operation: "auth.login",
    under: ["org", "role", "roleBase", "user", "userRoles", "password"],
    needs: ["user"],
    run: credential("user", tokenOf, (stage, node) =>
      login(stage, node, { email: stage.userEmail, password }),
    ),
  },
  {
    name: "log in to the platform",
    operation: "platform.auth.login",
    under: tagsOf.platformUser,
    needs: ["platformUser"],
    run: credential("platformUser", tokenOf, (stage, node) =>
      login(stage, node, { email: stage.platformUserEmail, password }, "/api/v1/platform/auth/login"),
    ),
  },
  {
    name: "make a desktop session",
    operation: "auth.desktopSession",
    under: tagsOf.desktop,
    needs: ["key"],
    run: credential(
      "desktop",
      tokenOf,
      post(
        as("key"),
        () => "/api/v1/auth/desktop-session",
        () => ({}),
      ),
    ),
  },
  { name: "make a key", operation: "keys.create", under: underRole, needs: [], run: newKey(boss) },
  {
    name: "make a key by a key",
    operation: "keys.create",
    under: underRole,
    needs: ["key"],
    run: newKey(as("key")),
  },
  {
    name: "make a key by a desktop session",
    operation: "keys.create",
    under: underRole,
    needs: ["desktop"],
    run: newKey(as("desktop")),
  },
  {
    name: "make a key by a user",
    operation: "keys.create",
    under: underRole,
    needs: ["user"],
    run: newKey(as("user")),
  },
  {
    name: "make a key by impersonation",
    operation: "keys.create",
    under: underRole,
    needs: ["platformUser"],
    run: newKey(impersonating),
  },
  {
    name: "make a platform key",
    operation: "keys.create",
    under: ["platformRole", "platformRoleBase"],
    needs: ["platformUser"],
    run: credential("platformKey", keyOf, platformKeyBy(as("platformUser"))),
  },
  {
    name: "rotate the key",
    operation: "keys.rotate",
    under: [...underRole, "key", "keyRoles"],
    needs: ["key"],
    run: credential(
      "key",
      keyOf,
      post(
        boss,
        ({ keyId }) => `/api/v1/apikeys/${keyId}/rotate`,
        () => ({}),
      ),
    ),
  },
  {
    name: "rotate the platform key",
    operation: "keys.rotate",
    under: ["platformRole", "platformRoleBase", "platformKey", "platformKeyRoles"],
    needs: ["platformKey"],
    run: credential(
      "platformKey",
      keyOf,
      post(
        ({ world }) => ({ key: world.platform }),
        ({ platformKeyId }) => `/api/v1/apikeys/${platformKeyId}/rotate`,
        () => ({}),
      ),
    ),
  },
  {
    name: "make the environment's key",
    operation: "environments.rotateKey",
    under: ["org", "project", "env"],
    needs: [],
    run: credential(
      "compat",
      ({ apiKey }: { apiKey: string }) => apiKey,
      (stage, node) => node.rpc("EnvironmentService", "RotateAPIKey", { id: stage.env }, { key: stage.boss }),
    ),
  },
  {
    name: "make a user",
    operation: "users.create",
    under: ["org", "role", "roleBase"],
    needs: [],
    run: newUser(boss, "/api/v1/users"),
  },
  {
    name: "make a user by impersonation",
    operation: "users.create",
    under: ["org", "role", "roleBase"],
    needs: ["platformUser"],
    run: newUser(impersonating, "/api/v1/users"),
  },
  {
    name: "make a platform user",
    operation: "platform.users.create",
    under: ["platformRole", "platformRoleBase"],
    needs: ["platformUser"],
    run: newUser(as("platformUser"), "/api/v1/platform/users"),
  },
  {
    name: "change the own password",
    operation: "users.changePassword",
    under: ["org", "role", "roleBase", "user", "userRoles"],
    needs: ["user"],
    excludes: ["users.changePassword", "auth.logout"],
    async run(stage, node) {
      const next = `${changedPassword} 2`;
      const { status } = await stage.call(node, `/api/v1/users/${stage.userId}/password`, {
        method: "PATCH",
        key: stage.standing.user!.text,
        body: { current_password: password, new_password: next },
      });
      if (status >= 300) return { status };
      const product = {
        async works() {
          const { status, body } = await login(stage, node, { email: stage.userEmail, password: next });
          return status === 200 && works(stage, "user", body.token);
        },
      };
      return { status, product };
    },
  },
];
