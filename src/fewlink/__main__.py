from fewlink.cli import main

main()
