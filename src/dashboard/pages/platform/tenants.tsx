import type { Static } from "@sinclair/typebox";
import { useState } from "preact/hooks";
import type { OrgShape } from "../../../domain/access/platform/operations.ts";
import { rest } from "../../lib/api.ts";
import { counted, instantOf, plain } from "../../lib/format.ts";
import { useChanged, useLoaded, useNet } from "../../lib/hooks.ts";
import { placeOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Button, Empty, PageHead, Text, When } from "../../ui/basics.tsx";
import { Confirm, Field, FormDialog } from "../../ui/dialog.tsx";
import { ReadTable } from "../../ui/table.tsx";
import { MadeKey } from "../access/made-key.tsx";

type TenantData = Static<typeof OrgShape>;

const tenants = "/api/v1/platform/tenants";
/** Made with the installation, which keeps it. */
const firstTenant = "org_default";

/** Every tenant of the installation; a user of the platform looks into each as the platform. */
export function TenantsPage() {
  const read = useLoaded((signal) => rest<TenantData[]>(tenants, { signal }), []);
  const [isMaking, setMaking] = useState(false);
  const [made, setMade] = useState("");
  const [deleted, setDeleted] = useState<TenantData>();
  useChanged("tenants", read.reload);
  useNet(read.reload);
  const manages = may("platform:tenants:manage");
  return (
    <div class="page">
      <PageHead
        title="Tenants"
        about={read.value ? counted(read.value.length, "organization") : "Reading…"}
        actions={
          manages && (
            <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
              New tenant…
            </Button>
          )
        }
      />
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "Tenant",
            of: ({ id, name }) => (
              <>
                <Text of={name} />
                <Text of={id} in="code" class="under" />
              </>
            ),
          },
          { name: "Made", isNumber: true, of: ({ created_at }) => <When at={instantOf(created_at)} /> },
          {
            name: "",
            of: (tenant) => (
              <span class="row-actions">
                {may("platform:impersonate:read") && (
                  <a class="button" href={placeOf(tenant.id, "", ["overview"])}>
                    Look inside
                  </a>
                )}
                {manages && tenant.id !== firstTenant && (
                  <Button icon="trash" onClick={() => setDeleted(tenant)}>
                    Delete…
                  </Button>
                )}
              </span>
            ),
          },
        ]}
        empty={<Empty title="No tenants" />}
      />
      {isMaking && (
        <NewTenant
          through={read.value?.[0]?.id ?? firstTenant}
          onMade={setMade}
          onDone={read.reload}
          onClose={() => setMaking(false)}
        />
      )}
      {made !== "" && <MadeKey text={made} onClose={() => setMade("")} />}
      {deleted && (
        <DeleteTenant tenant={deleted} onDone={read.reload} onClose={() => setDeleted(undefined)} />
      )}
    </div>
  );
}

function NewTenant(props: {
  /** The call that makes all at once wants an org to be named. */
  through: string;
  onMade: (key: string) => void;
  onDone: () => void;
  onClose: () => void;
}) {
  const { through, onMade, onDone, onClose } = props;
  const [name, setName] = useState("");
  const [environment, setEnvironment] = useState("production");
  const submit = async () => {
    const body = { org_name: name, ...(environment && { env_name: environment }) };
    const headers = { "X-Svc-Org": through };
    const path = "/api/v1/tenants/provision";
    onMade((await rest<{ api_key: { key: string } }>(path, { body, headers })).api_key.key);
    onDone();
  };
  return (
    <FormDialog title="New tenant" submit="Make" onSubmit={submit} onClose={onClose}>
      <p>Makes the organization with a project, an environment and a key of its admin, all at once.</p>
      <Field label="Name" isRequired value={name} onInput={setName} />
      <Field label="First environment" value={environment} onInput={setEnvironment} />
    </FormDialog>
  );
}

function DeleteTenant(props: { tenant: TenantData; onDone: () => void; onClose: () => void }) {
  const { tenant, onDone, onClose } = props;
  const [typed, setTyped] = useState("");
  const act = async () => {
    if (typed !== tenant.name) throw new Error("What you typed is not the tenant's name.");
    await rest(`${tenants}/${encodeURIComponent(tenant.id)}`, { method: "DELETE" });
  };
  return (
    <Confirm
      title={`Delete ${plain(tenant.name)}?`}
      verb="Delete the tenant"
      act={act}
      done="Tenant deleted"
      onDone={onDone}
      onClose={onClose}
    >
      <p>Its users, keys, environments and everything in them go with it, and cannot be brought back.</p>
      <Field label="Type its name" isRequired value={typed} onInput={setTyped} />
    </Confirm>
  );
}
