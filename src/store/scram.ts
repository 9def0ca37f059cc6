import { createHash, createHmac, pbkdf2 } from "node:crypto";
import { promisify } from "node:util";

const iterations = 4096;

/** What PostgreSQL keeps of a password: sent instead of it, so that no log of the server has the password. */
export async function scramVerifier(password: string, salt: Uint8Array): Promise<string> {
  const salted = await promisify(pbkdf2)(password, salt, iterations, 32, "sha256");
  const keyOf = (name: string) => createHmac("sha256", salted).update(name).digest();
  const stored = createHash("sha256").update(keyOf("Client Key")).digest("base64");
  const server = keyOf("Server Key").toString("base64");
  return `SCRAM-SHA-256$${iterations}:${Buffer.from(salt).toString("base64")}$${stored}:${server}`;
}
