# Fetches one reference, or every branch where fetch-depth is 0, and checks it out.
set -euo pipefail
folder="$GITHUB_WORKSPACE/$FOLDER"
mkdir -p "$folder"
cd "$folder"
rm -rf -- ./* ./.[!.]*
secret="$(printf 'x-access-token:%s' "$TOKEN" | base64 --wrap=0)"
header="AUTHORIZATION: basic $secret"
git init --quiet .
git remote add origin "$SERVER/$REPOSITORY.git"
depth=(--depth "$DEPTH")
if [ "$DEPTH" = 0 ]; then depth=(); fi
branch="${REF#refs/heads/}"
if [ -z "$REF" ]; then
  wanted="+$OWN_SHA:refs/remotes/checkout"
  branch="${OWN_REF#refs/heads/}"
elif [[ "$REF" =~ ^[0-9a-f]{40}$ ]]; then
  wanted="+$REF:refs/remotes/checkout"
  branch=""
elif [[ "$REF" == refs/* && "$REF" != refs/heads/* ]]; then
  wanted="+$REF:refs/remotes/checkout"
  branch=""
else
  wanted="+refs/heads/$branch:refs/remotes/checkout"
fi
all=()
if [ "$DEPTH" = 0 ]; then all=("+refs/heads/*:refs/remotes/origin/*" "+refs/tags/*:refs/tags/*"); fi
git -c http.extraheader="$header" fetch --quiet --no-tags "${depth[@]}" origin "$wanted" "${all[@]}"
if [ -n "$branch" ] && [[ "$branch" != refs/* ]]; then
  git update-ref "refs/remotes/origin/$branch" refs/remotes/checkout
  git checkout --quiet -B "$branch" refs/remotes/checkout
else
  git checkout --quiet --detach refs/remotes/checkout
fi
git update-ref -d refs/remotes/checkout
if [ "$KEEPS" = true ]; then git config "http.$SERVER/.extraheader" "$header"; fi
