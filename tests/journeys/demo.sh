# See the lottery ticket hypothesis happen. (The other journeys begin after the first line of this one.)
pip install 'prunus[demo]'
prunus demo
