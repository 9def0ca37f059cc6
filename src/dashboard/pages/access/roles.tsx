import { useState } from "preact/hooks";
import {
  type AccessScope,
  assignPolicy,
  createRole,
  deleteRole,
  listPolicies,
  listRoles,
  policiesOfRole,
  type RoleData,
  unassignPolicy,
} from "../../lib/access.ts";
import { count, plain } from "../../lib/format.ts";
import { useChanged, useLoaded, useNet } from "../../lib/hooks.ts";
import { hrefOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { attempt, toast } from "../../lib/toasts.ts";
import { Button, Empty, Failure, Text } from "../../ui/basics.tsx";
import { Check, Choice, Confirm, Dialog, Field, FormDialog } from "../../ui/dialog.tsx";
import { ReadTable } from "../../ui/table.tsx";

type AskedOfRoles = { deed: "create" } | { deed: "policies" | "delete"; role: RoleData };

export function Roles({ scope }: { scope: AccessScope }) {
  const [asked, setAsked] = useState<AskedOfRoles>();
  const close = () => setAsked(undefined);
  const read = useLoaded((signal) => listRoles(scope, signal), [scope]);
  useChanged("roles", read.reload);
  useNet(read.reload);
  const manages = may(scope.manages.roles);
  const done = { onDone: read.reload, onClose: close };
  return (
    <>
      <div class="toolbar">
        {manages && (
          <Button kind="primary" icon="plus" onClick={() => setAsked({ deed: "create" })}>
            New role…
          </Button>
        )}
      </div>
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Role",
            of: ({ id, name, is_default }) => (
              <>
                <Text of={name} />
                {is_default && <span class="tag">built in</span>}
                <Text of={id} in="code" class="under" />
              </>
            ),
          },
          {
            name: "Grants",
            of: ({ is_default, base, name }) =>
              is_default ? `what ${name} may` : base ? `what ${plain(base)} may` : "nothing",
          },
          { name: "Policies", isNumber: true, of: ({ policy_count }) => count(policy_count) },
          { name: "Keys", isNumber: true, of: ({ api_key_count }) => count(api_key_count) },
          {
            name: "",
            of: (role) => (
              <span class="row-actions">
                <Button onClick={() => setAsked({ deed: "policies", role })}>Policies…</Button>
                {manages && !role.is_default && (
                  <Button icon="trash" onClick={() => setAsked({ deed: "delete", role })}>
                    Delete…
                  </Button>
                )}
              </span>
            ),
          },
        ]}
        empty={<Empty title="No roles" />}
      />
      {asked?.deed === "create" && <RoleDialog scope={scope} roles={read.value ?? []} {...done} />}
      {asked?.deed === "policies" && <RolePolicies scope={scope} role={asked.role} {...done} />}
      {asked?.deed === "delete" && <DeleteRole scope={scope} role={asked.role} {...done} />}
    </>
  );
}

interface RoleDialogProps {
  scope: AccessScope;
  onDone: () => void;
  onClose: () => void;
}

function RoleDialog(props: RoleDialogProps & { roles: readonly RoleData[] }) {
  const { scope, roles, onDone, onClose } = props;
  const [name, setName] = useState("");
  const [base, setBase] = useState("");
  const submit = async () => {
    await createRole(scope, { name, ...(base && { base }) });
    toast("done", `Role ${plain(name)} made`);
    onDone();
  };
  const builtIn = roles.filter(({ is_default }) => is_default).map((role) => [role.name, role.name] as const);
  return (
    <FormDialog title="New role" submit="Make" onSubmit={submit} onClose={onClose}>
      <Field label="Name" isRequired value={name} onInput={setName} />
      <Choice
        label="Grants what this role may"
        value={base}
        options={[["", "Nothing"], ...builtIn]}
        onChange={setBase}
        hint="Its policies deny single things of that."
      />
    </FormDialog>
  );
}

function DeleteRole({ scope, role, onDone, onClose }: RoleDialogProps & { role: RoleData }) {
  const [isForced, setForced] = useState(false);
  return (
    <Confirm
      title={`Delete role ${plain(role.name)}?`}
      verb="Delete the role"
      act={() => deleteRole(scope, role.id, isForced)}
      done="Role deleted"
      onDone={onDone}
      onClose={onClose}
    >
      <Check label="Take it off every user and key that has it" isChecked={isForced} onChange={setForced} />
    </Confirm>
  );
}

/** The deny policies of a role, to give it more or take some away. */
function RolePolicies({ scope, role, onDone, onClose }: RoleDialogProps & { role: RoleData }) {
  const { value, error, reload } = useLoaded(
    async (signal) => {
      const [own, all] = await Promise.all([
        policiesOfRole(scope, role.id, signal),
        listPolicies(scope, signal),
      ]);
      return { own, all };
    },
    [role.id],
  );
  const manages = may(scope.manages.roles);
  const [chosen, setChosen] = useState("");
  const change = async (act: () => Promise<unknown>, done: string) => {
    if (!(await attempt(act, done))) return;
    reload();
    onDone();
  };
  const others = value?.all.filter(({ id }) => !value.own.some((policy) => policy.id === id)) ?? [];
  return (
    <Dialog title={`Policies of ${plain(role.name)}`} onClose={onClose}>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {value?.own.length === 0 && <Empty title="Nothing is denied" />}
      <ul class="plain-list">
        {value?.own.map(({ id, name }) => (
          <li key={id}>
            <Text of={name} href={hrefOf(["policies", id])} class="grows" />
            {manages && (
              <Button
                onClick={() => void change(() => unassignPolicy(scope, role.id, id), "Policy taken away")}
              >
                Take away
              </Button>
            )}
          </li>
        ))}
      </ul>
      {manages && others.length > 0 && (
        // Arrow keys choose each policy on the way: only the button gives one.
        <form
          class="inline-form"
          onSubmit={(event) => {
            event.preventDefault();
            void change(() => assignPolicy(scope, role.id, chosen), "Policy given");
            setChosen("");
          }}
        >
          <Choice
            label="Give it another"
            value={chosen}
            options={[["", "Choose a policy…"], ...others.map(({ id, name }) => [id, name] as const)]}
            onChange={setChosen}
          />
          <Button type="submit" isDisabled={chosen === ""}>
            Give
          </Button>
        </form>
      )}
    </Dialog>
  );
}
