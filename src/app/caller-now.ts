import { defaultOrgId } from "../domain/access/tenancy/rules.ts";
import { roleIdOf } from "../gate/actions.ts";
import type { Caller, Starter } from "../kit/caller.ts";
import { Fault } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";
import type { IdentityPart } from "./identity.ts";
import type { Host } from "./part.ts";
import type { AppRights } from "./rights.ts";

/** Everyone, with `--dev`. */
export const developer: Caller = {
  kind: "dev",
  id: "dev",
  orgId: defaultOrgId,
  roles: [roleIdOf("admin"), roleIdOf("platform_admin")],
};

type Identity = Pick<IdentityPart, "keys" | "users" | "platformUsers">;

/** The starter as its credential is now; undefined when it is gone, over, or of another environment. */
export async function callerNow(
  { config, clock }: Host,
  { keys, users, platformUsers }: Identity,
  { kind, id, orgId, impersonates }: Starter,
  environmentId: string,
): Promise<Caller | undefined> {
  if (kind === "dev") return config.dev ? developer : undefined;
  if (id.startsWith("ak_")) {
    const key = await keys.byId(id);
    if (!key || (key.expiresAt !== undefined && key.expiresAt <= clock.now())) return undefined;
    if (key.environmentId !== undefined && key.environmentId !== environmentId) return undefined;
    return { ...key.caller, kind, ...(impersonates && { orgId, impersonates }) };
  }
  if (kind === "platform") {
    const user = await platformUsers.find(id);
    if (!user?.isActive) return undefined;
    return { kind, id, roles: user.roles, email: user.email, orgId, ...(impersonates && { impersonates }) };
  }
  const user = await users.find(id);
  return user && { kind, id, orgId: user.orgId, roles: user.roleIds, email: user.email };
}

/** The refusal of what is asked; any other failure is thrown. */
export async function refusalIn(ask: () => void | Promise<void>): Promise<Fault | undefined> {
  try {
    await ask();
    return undefined;
  } catch (error) {
    if (error instanceof Fault && error.kind === "permission_denied") return error;
    throw error;
  }
}

/** Why the sender of an event may not emit it now; undefined when they may. */
export const openEmitRights =
  (
    host: Host,
    needs: { identity: Identity; gate: AppRights["gate"]; registry: () => readonly Operation[] },
  ) =>
  async (sender: Starter, environmentId: string, event: string): Promise<Fault | undefined> => {
    const caller = await callerNow(host, needs.identity, sender, environmentId);
    if (!caller) return new Fault("permission_denied", `its sender ${sender.id} is gone`);
    const operation = needs.registry().find(({ name }) => name === "events.emit")!;
    const call = { caller, environmentId };
    const { gate } = needs;
    return (
      (await refusalIn(() => gate.gate(call, operation))) ??
      (await refusalIn(() => gate.guard(call, operation, { event })))
    );
  };

export type EmitRights = ReturnType<typeof openEmitRights>;
