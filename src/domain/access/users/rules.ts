import { Fault, invalid } from "../../../kit/fault.ts";

export const usersMax = 10_000;
export const emailCharsMax = 254;
const userNameCharsMax = 200;
const passwordCharsMin = 8;
const passwordBytesMax = 1_024;

/** Addresses are compared without case. */
export function readEmail(text: string): string {
  const email = text.trim().toLowerCase();
  if (email.length > emailCharsMax) throw invalid("email", `at most ${emailCharsMax} characters`);
  if (!/^[^\s@\p{C}]+@[^\s@\p{C}]+$/u.test(email)) throw invalid("email", "must be an email address");
  return email;
}

export function requirePassword(field: string, password: string): void {
  if (password.length < passwordCharsMin) throw invalid(field, `at least ${passwordCharsMin} characters`);
  if (Buffer.byteLength(password) > passwordBytesMax)
    throw invalid(field, `at most ${passwordBytesMax} bytes`);
}

export function readUserName(text: string): string {
  const name = text.trim();
  if (name.length > userNameCharsMax) throw invalid("name", `at most ${userNameCharsMax} characters`);
  if (/\p{Cc}/u.test(name) || !name.isWellFormed())
    throw invalid("name", "must not contain control characters");
  return name;
}

/** The hash of no password: nothing is verified against it. */
export const noPassword = "";

export const emailOfAnother = (): Fault =>
  new Fault(
    "already_exists",
    "a user with this email exists: sign in as that user, and join this one to it (page Access, tab Sessions)",
    { field: "email" },
  );
